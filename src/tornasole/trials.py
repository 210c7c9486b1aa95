"""`smdebug.trials` under the older name."""

from smdebug.trials import LocalTrial, S3Trial, StepState, Tensor, Trial, create_trial

__all__ = ["LocalTrial", "S3Trial", "StepState", "Tensor", "Trial", "create_trial"]
