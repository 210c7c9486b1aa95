"""The import path `smdebug.core.reduction_config` of smdebug 1.0."""

from smdebug.config.reduction_config import ReductionConfig
from smdebug.reductions import ALLOWED_NORMS, ALLOWED_REDUCTIONS

__all__ = ["ALLOWED_NORMS", "ALLOWED_REDUCTIONS", "ReductionConfig"]
