"""The import path `smdebug.core.sagemaker_utils` of smdebug 1.0."""

from smdebug.config.environment import in_sagemaker as is_sagemaker_job

__all__ = ["is_sagemaker_job"]
