"""Minimum and maximum of host tensors: what the rules about NaN and Inf need.

Computing them takes as long as copying the tensor, and nothing has to be kept: if both are finite,
so is everything in between.
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

    from smdebug.hook.capture import Capture
    from smdebug.hook.plan import SaveRequest
    from smdebug.storage.batch import StepBatch

_FROM_MINMAX = frozenset({"min", "max", "nans", "infs"})
# How many sets of tensors that were captured together are cached.
_MAX_SCHEMAS = 64
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class MinMaxCapture:
    """Minimum and maximum of tensors that were captured one after the other, all of them finite.

    Together, because a row each costs the writer thread time that training has to wait for.

    Args:
        request: what to save of each.
        schemas: those of earlier steps, by their tensors.
    """

    needs_release = False

    def __init__(self, request: SaveRequest, schemas: dict[object, BlockSchema]) -> None:
        self.request = request
        self.tensors = self.nbytes = 0
        self._schemas = schemas
        self._names: list[str] = []
        self._kinds: list[tuple[torch.dtype, torch.Size]] = []
        self._sizes: list[int] = []
        self._low: list[float] = []
        self._high: list[float] = []

    def add(self, name: str, tensor: torch.Tensor, low: float, high: float) -> None:
        """Add a tensor."""
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
        chosen = {name: numbers[name] for name in self.request.reductions}
        positions = np.arange(batch.placed, batch.placed + count)
        batch.blocks.append(Block(self._schema(), None, chosen, positions))

    def _schema(self) -> BlockSchema:
        key = (tuple(self._names), tuple(self._kinds))
        if key not in self._schemas:
            if len(self._schemas) >= _MAX_SCHEMAS:
                # Other shapes at every step, as of sentences.
                self._schemas.clear()
            dtypes = tuple(DTYPES[dtype].name for dtype, _ in self._kinds)
            shapes = tuple(tuple(shape) for _, shape in self._kinds)
            self._schemas[key] = BlockSchema(tuple(self._names), dtypes, shapes)
        return self._schemas[key]

    def release(self) -> None:
        """Do nothing: there is no memory to return."""

    def items(self) -> Iterator[tuple[str, SaveRequest, int]]:
        for name, size in zip(self._names, self._sizes, strict=True):
            yield name, self.request, saved_bytes(size, self.request)

    def totals(self) -> Iterable[tuple[tuple[str, ...], int, int]]:
        size = sum(saved_bytes(each, self.request) for each in self._sizes)
        return [(self.request.collections, len(self._names), size)]


class MinMax:
    """Captures host tensors: those by minimum and maximum of which no more is saved.

    The output of a module is often the input of the next one and the output of its parent: minimum
    and maximum of a tensor are computed once in a step.
    """

    def __init__(self) -> None:
        # By identity, which the reference confirms: another tensor may get the same one later.
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], int, float, float]] = {}
        self._schemas: dict[object, BlockSchema] = {}

    def begin_step(self) -> None:
        """Drop the tensors of the previous step."""
        self._known.clear()

    def capture(
        self,
        name: str,
        tensor: torch.Tensor,
        local: torch.Tensor,
        request: SaveRequest,
        last: Capture | None = None,
        time: float | None = None,
    ) -> TensorCapture | MinMaxCapture | None:
        """Capture a tensor in the way with the least overhead for training.

        Args:
            name: its name.
            tensor: the tensor as the framework passed it.
            local: the same, as `local_tensor` returns it.
            request: what to save of it.
            last: the last capture of the same step.
            time: seconds since 1970, when it differs from the step's.

        Returns:
            The capture; None when the tensor joined the last one.
        """
        enough = request.reductions and _FROM_MINMAX.issuperset(request.reductions)
        only = not request.raw and request.histogram is None and time is None
        if enough and only and local.numel() and local.dtype in _DTYPES:
            low, high = self._of(tensor, local)
            if math.isfinite(low) and math.isfinite(high):
                if isinstance(last, MinMaxCapture) and last.request == request:
                    last.add(name, local, low, high)
                    return None
                capture = MinMaxCapture(request, self._schemas)
                capture.add(name, local, low, high)
                return capture
        return TensorCapture(name, local, request, time)

    def _of(self, tensor: torch.Tensor, local: torch.Tensor) -> tuple[float, float]:
        # Nothing shows that a tensor of inference mode was overwritten.
        version = -1 if tensor.is_inference() else tensor._version
        found = self._known.get(id(tensor))
        if found is not None and found[0]() is tensor and found[1] == version >= 0:
            return found[2], found[3]
        low, high = (float(each) for each in torch.aminmax(local))
        self._known[id(tensor)] = (weakref.ref(tensor), version, low, high)
        return low, high
