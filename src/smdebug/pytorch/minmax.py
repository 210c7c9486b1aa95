"""The smallest and the largest number of tensors: what the rules about NaN and Inf live on.

Finding the extremes of a tensor takes as long as copying it and leaves nothing to do, nor to keep:
finite ones say that everything in between is finite too.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING

import numpy as np
import torch

from smdebug.hook.capture import saved_bytes
from smdebug.pytorch.tensors import DTYPES, TensorCapture
from smdebug.storage.batch import Block, BlockSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.hook.plan import SaveRequest
    from smdebug.storage.batch import StepBatch

_FROM_EXTREMES = frozenset({"min", "max", "nans", "infs"})
# How many sets of tensors that came together are remembered.
_MOST_LAYOUTS = 64
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class MinMaxCapture:
    """The extremes of tensors that came one after the other, all of them finite.

    Together, because a row by itself costs the writer's thread time that training has to wait for.

    Args:
        want: what is saved of each.
        layouts: those of earlier steps, by what is in them.
    """

    needs_release = False

    def __init__(self, want: SaveRequest, layouts: dict[object, BlockSchema]) -> None:
        self.want = want
        self.tensors = self.nbytes = 0
        self._layouts = layouts
        self._names: list[str] = []
        self._kinds: list[tuple[torch.dtype, torch.Size]] = []
        self._sizes: list[int] = []
        self._low: list[float] = []
        self._high: list[float] = []

    def add(self, name: str, tensor: torch.Tensor, low: float, high: float) -> None:
        """Adds a tensor."""
        self._names.append(name)
        self._kinds.append((tensor.dtype, tensor.shape))
        self._sizes.append(tensor.nbytes)
        self._low.append(low)
        self._high.append(high)
        self.tensors += 1
        self.nbytes += 200

    def finish(self, batch: StepBatch) -> None:
        count = len(self._names)
        numbers = {"min": np.array(self._low), "max": np.array(self._high)}
        numbers["nans"] = numbers["infs"] = np.zeros(count)
        chosen = {name: numbers[name] for name in self.want.reductions}
        positions = np.arange(batch.placed, batch.placed + count)
        batch.blocks.append(Block(self._layout(), None, chosen, positions))

    def _layout(self) -> BlockSchema:
        key = (tuple(self._names), tuple(self._kinds))
        if key not in self._layouts:
            if len(self._layouts) >= _MOST_LAYOUTS:
                # Other shapes at every step, as of sentences.
                self._layouts.clear()
            dtypes = tuple(DTYPES[dtype].name for dtype, _ in self._kinds)
            shapes = tuple(tuple(shape) for _, shape in self._kinds)
            self._layouts[key] = BlockSchema(tuple(self._names), dtypes, shapes)
        return self._layouts[key]

    def release(self) -> None:
        """There is no memory to give back."""

    def items(self) -> Iterator[tuple[str, SaveRequest, int]]:
        for name, size in zip(self._names, self._sizes, strict=True):
            yield name, self.want, saved_bytes(size, self.want)

    def totals(self) -> Iterable[tuple[tuple[str, ...], int, int]]:
        size = sum(saved_bytes(each, self.want) for each in self._sizes)
        return [(self.want.collections, len(self._names), size)]


class MinMax:
    """Takes tensors of the host, those by their extremes of which no more is wanted.

    What one module returns is often what the next one takes, and what its parent returns: the
    extremes of a tensor are looked for once in a step.
    """

    def __init__(self) -> None:
        # By identity, which the reference confirms: a tensor that is gone may lend it to another.
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], int, float, float]] = {}
        self._layouts: dict[object, BlockSchema] = {}
        self._gathered: MinMaxCapture | None = None

    def begin_step(self) -> None:
        """Forgets the tensors of the step before."""
        self._known.clear()
        self._gathered = None

    def handed_over(self) -> None:
        """What comes from now on, be it of the same step, is gathered anew."""
        self._gathered = None

    def take(
        self, name: str, tensor: torch.Tensor, local: torch.Tensor, want: SaveRequest
    ) -> TensorCapture | MinMaxCapture | None:
        """Takes a tensor, in the way that costs training least.

        Args:
            name: its name.
            tensor: the tensor as the framework gave it.
            local: the same, as `local_tensor` returns it.
            want: what is saved of it.

        Returns:
            What was taken; None when the tensor joined what was returned before.
        """
        enough = want.reductions and _FROM_EXTREMES.issuperset(want.reductions)
        only = not want.raw and want.histogram is None
        if enough and only and local.numel() and local.dtype in _DTYPES:
            low, high = self._of(tensor, local)
            if math.isfinite(low) and math.isfinite(high):
                return self._gather(name, local, want, low, high)
        # What comes next comes after it.
        self._gathered = None
        return TensorCapture(name, local, want)

    def _gather(
        self, name: str, local: torch.Tensor, want: SaveRequest, low: float, high: float
    ) -> MinMaxCapture | None:
        gathered, joined = self._gathered, True
        if gathered is None or gathered.want != want:
            gathered = self._gathered = MinMaxCapture(want, self._layouts)
            joined = False
        gathered.add(name, local, low, high)
        return None if joined else gathered

    def _of(self, tensor: torch.Tensor, local: torch.Tensor) -> tuple[float, float]:
        # Nothing would tell that a tensor of inference mode was written to meanwhile.
        version = -1 if tensor.is_inference() else tensor._version
        found = self._known.get(id(tensor))
        if found is not None and found[0]() is tensor and found[1] == version >= 0:
            return found[2], found[3]
        low, high = (float(each) for each in torch.aminmax(local))
        self._known[id(tensor)] = (weakref.ref(tensor), version, low, high)
        return low, high
