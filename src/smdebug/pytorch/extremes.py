"""The smallest and the largest number of tensors: what the rules about NaN and Inf live on.

Finding the extremes of a tensor takes as long as copying it and leaves nothing to do, nor to keep:
finite ones say that everything in between is finite too.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING

import torch

from smdebug.pytorch.tensors import TakenNumbers, TakenTensor

if TYPE_CHECKING:
    from smdebug.hook.plan import Want

_FROM_EXTREMES = frozenset({"min", "max", "nans", "infs"})
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Extremes:
    """Takes tensors of the host, those by their extremes of which no more is wanted.

    What one module returns is often what the next one takes, and what its parent returns: the
    extremes of a tensor are looked for once in a step.
    """

    def __init__(self) -> None:
        # By identity, which the reference confirms: a tensor that is gone may lend it to another.
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], int, float, float]] = {}

    def begin_step(self) -> None:
        """Forgets the tensors of the step before."""
        self._known.clear()

    def take(
        self, name: str, tensor: torch.Tensor, local: torch.Tensor, want: Want
    ) -> TakenTensor | TakenNumbers:
        """Takes a tensor, in the way that costs training least.

        Args:
            name: its name.
            tensor: the tensor as the framework gave it.
            local: the same, as `local_tensor` returns it.
            want: what is saved of it.
        """
        enough = not want.raw and want.reductions and _FROM_EXTREMES.issuperset(want.reductions)
        if not enough or not local.numel() or local.dtype not in _DTYPES:
            return TakenTensor(name, local, want)
        low, high = self._of(tensor, local)
        if not (math.isfinite(low) and math.isfinite(high)):
            return TakenTensor(name, local, want)
        known = {"min": low, "max": high, "nans": 0.0, "infs": 0.0}
        numbers = {reduction: known[reduction] for reduction in want.reductions}
        return TakenNumbers(name, local, want, numbers)

    def _of(self, tensor: torch.Tensor, local: torch.Tensor) -> tuple[float, float]:
        # Nothing would tell that a tensor of inference mode was written to meanwhile.
        version = -1 if tensor.is_inference() else tensor._version
        found = self._known.get(id(tensor))
        if found is not None and found[0]() is tensor and found[1] == version >= 0:
            return found[2], found[3]
        low, high = (float(each) for each in torch.aminmax(local))
        self._known[id(tensor)] = (weakref.ref(tensor), version, low, high)
        return low, high
