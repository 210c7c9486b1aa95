"""`Tensor` and `StepState` under the path of smdebug 1.0."""

from smdebug.trials.steps import StepState
from smdebug.trials.tensor import Tensor

__all__ = ["StepState", "Tensor"]
