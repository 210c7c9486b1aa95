"""Reading runs: `create_trial` opens one, `Trial` and `Tensor` answer questions about it."""

from smdebug.trials.create import LocalTrial, S3Trial, create_trial
from smdebug.trials.frame import Column, Frame
from smdebug.trials.tensor import StepState, Tensor
from smdebug.trials.trial import Trial

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
