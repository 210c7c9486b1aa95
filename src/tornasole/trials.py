"""`smdebug.trials` under the older name."""

from smdebug.trials import (
    Column,
    Frame,
    LocalTrial,
    S3Trial,
    StepState,
    Tensor,
    Trial,
    create_trial,
)

__all__ = [
    "Column",
    "Frame",
    "LocalTrial",
    "S3Trial",
    "StepState",
    "Tensor",
    "Trial",
    "create_trial",
]
