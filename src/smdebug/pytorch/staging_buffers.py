"""Staging buffers: many host tensors, such as all parameters, copied at once.

Tensors of one size and type, of which the same is saved, become the rows of one matrix, so that the
writer thread reduces all of them with a handful of calls. The memory is reused step after step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from smdebug.hook.capture import make_entry, saved_bytes
from smdebug.pytorch.tensors import DTYPES
from smdebug.reductions import compute_row_reductions
from smdebug.storage.batch import Block, BlockSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from smdebug.hook.plan import SaveRequest
    from smdebug.reductions import Array
    from smdebug.storage.batch import StepBatch

_ALIGNMENT = 64
# Larger raw tensors are written one by one: their checksums are computed in parallel to writing.
_LARGE = 1 << 20
# How many sets of tensors that were delivered together are cached.
_MAX_PARTIAL = 64


class Slot(NamedTuple):
    """A tensor that has a slot in a buffer."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    request: SaveRequest

    @property
    def nbytes(self) -> int:
        """The size of the tensor."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


class _Group(NamedTuple):
    """Slots of one size, type and request: a matrix with a row each."""

    positions: npt.NDArray[np.int64]
    start: int
    size: int
    schema: BlockSchema
    request: SaveRequest
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return len(self.positions) * self.size * int(self.dtype.itemsize)


def fits_in_buffer(tensor: torch.Tensor) -> bool:
    """Return whether a tensor can have a slot: several real numbers on the host."""
    return tensor.device.type == "cpu" and tensor.numel() > 1 and not tensor.is_complex()


class BufferLayout:
    """Where each of a list of tensors is in a buffer.

    Args:
        slots: the tensors.

    Attributes:
        slots: the tensors, in the given order.
        groups: the matrices.
        nbytes: the size of a buffer.
        totals: collections, and how many tensors and bytes are saved for them.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = tuple(slots)
        self.groups: list[_Group] = []
        alike: dict[tuple[torch.dtype, int, SaveRequest], list[int]] = {}
        for position, slot in enumerate(slots):
            key = (slot.dtype, math.prod(slot.shape), slot.request)
            alike.setdefault(key, []).append(position)
        self.nbytes = 0
        for (dtype, size, request), positions in alike.items():
            group = _Group(
                np.array(positions, np.int64), self.nbytes, size, self._schema(positions), request,
                dtype,
            )  # fmt: skip
            self.groups.append(group)
            self.nbytes += -(-group.nbytes // _ALIGNMENT) * _ALIGNMENT
        self.totals = [
            (
                each.request.collections,
                len(each.positions),
                len(each.positions) * saved_bytes(each.size * each.dtype.itemsize, each.request),
            )
            for each in self.groups
        ]
        self._free: list[_Memory] = []
        self._partial: dict[tuple[int, ...], BlockSchema] = {}

    def buffer(self) -> StagingBuffer:
        """Return a buffer for the tensors of one step."""
        return StagingBuffer(self, self._free.pop() if self._free else _Memory(self))

    def recycle(self, memory: _Memory) -> None:
        """Return the memory of a buffer to the pool."""
        self._free.append(memory)

    def partial_schema(self, positions: tuple[int, ...]) -> BlockSchema:
        """Return the schema of some of the tensors; cached, as the writer caches by schema."""
        if positions not in self._partial:
            if len(self._partial) >= _MAX_PARTIAL:
                # Other parts at every step, as of a mixture of experts.
                self._partial.clear()
            self._partial[positions] = self._schema(positions)
        return self._partial[positions]

    def _schema(self, positions: Sequence[int]) -> BlockSchema:
        slots = [self.slots[position] for position in positions]
        return BlockSchema(
            tuple(slot.name for slot in slots),
            tuple(DTYPES[slot.dtype].name for slot in slots),
            tuple(slot.shape for slot in slots),
        )


class _Memory:
    """Memory that serves one step after the other.

    Attributes:
        views: the slot of each tensor.
        matrices: the same memory by group.
    """

    def __init__(self, layout: BufferLayout) -> None:
        # A tensor made in inference mode could not be written to outside it.
        with torch.inference_mode(False):
            memory = torch.empty(layout.nbytes, dtype=torch.uint8, device="cpu")
            self.views: list[torch.Tensor] = [memory] * len(layout.slots)
            self.matrices: list[Array] = []
            for group in layout.groups:
                part = memory[group.start : group.start + group.nbytes]
                matrix = part.view(group.dtype).view(len(group.positions), group.size)
                for row, position in enumerate(group.positions.tolist()):
                    self.views[position] = matrix[row].view(layout.slots[position].shape)
                array = part.numpy().view(DTYPES[group.dtype])
                self.matrices.append(array.reshape(len(group.positions), group.size))


class StagingBuffer:
    """The tensors of one step in their slots; a `Capture`.

    Args:
        layout: where each tensor is.
        memory: the memory.
    """

    needs_release = True

    def __init__(self, layout: BufferLayout, memory: _Memory) -> None:
        self._layout = layout
        # None from when it is returned: it is another step's from then on.
        self._memory: _Memory | None = memory
        self._views = memory.views
        self._present = bytearray(len(layout.slots))
        # The positions in the order of delivery; empty when all were copied at once.
        self._order: list[int] = []
        self.tensors = len(layout.slots)
        self.nbytes = layout.nbytes + 100 * len(layout.slots)

    def fill(self, tensors: list[torch.Tensor]) -> None:
        """Copy all tensors at once."""
        with torch.no_grad():
            torch._foreach_copy_(self._views, tensors)
        self._present = bytearray(b"\x01") * len(self._present)

    def put(self, position: int, tensor: torch.Tensor) -> None:
        """Copy one tensor; a second one replaces the first."""
        self._views[position].copy_(tensor)
        self._present[position] = 1
        self._order.append(position)

    def finish(self, batch: StepBatch) -> None:
        positions = self._execution_order(batch.placed)
        assert self._memory is not None
        whole, present = all(self._present), np.frombuffer(self._present, np.bool_)
        for group, matrix in zip(self._layout.groups, self._memory.matrices, strict=True):
            schema, order = group.schema, positions[group.positions]
            if not whole:
                rows = np.flatnonzero(present[group.positions])
                if not len(rows):
                    continue
                if len(rows) < len(group.positions):
                    matrix, order = matrix[rows], order[rows]
                    schema = self._layout.partial_schema(tuple(group.positions[rows].tolist()))
            _add(batch, schema, matrix, group.request, order)
        if not any(group.request.raw for group in self._layout.groups):
            # Everything is reduced: the memory can serve the next step at once.
            self.release()

    def _execution_order(self, start: int) -> npt.NDArray[np.int64]:
        """Return for each tensor when it was delivered, counted from `start`."""
        positions = np.arange(start, start + self.tensors)
        if self._order:
            # A tensor that was delivered twice counts once, where it was delivered last.
            order = list(dict.fromkeys(reversed(self._order)))[::-1]
            positions[order] = np.arange(start, start + len(order))
        return positions

    def release(self) -> None:
        """Return the memory for another step, unless that has been done."""
        memory, self._memory = self._memory, None
        if memory is not None:
            self._layout.recycle(memory)

    def items(self) -> Iterator[tuple[str, SaveRequest, int]]:
        for position, slot in enumerate(self._layout.slots):
            if self._present[position]:
                yield slot.name, slot.request, saved_bytes(slot.nbytes, slot.request)

    def totals(self) -> Iterable[tuple[tuple[str, ...], int, int]]:
        if all(self._present):
            return self._layout.totals
        return [(request.collections, 1, size) for _, request, size in self.items()]


def _add(
    batch: StepBatch,
    schema: BlockSchema,
    matrix: Array,
    request: SaveRequest,
    order: npt.NDArray[np.int64],
) -> None:
    """Add the rows of a matrix to a batch: one block, or an entry for each large raw tensor."""
    values = None
    if request.raw:
        values = [row.reshape(shape) for row, shape in zip(matrix, schema.shapes, strict=True)]
        if values[0].nbytes >= _LARGE:
            batch.entries.extend(
                make_entry(name, value, request, position)
                for name, value, position in zip(schema.names, values, order.tolist(), strict=True)
            )
            return
    numbers = compute_row_reductions(matrix, request.reductions) if request.reductions else {}
    batch.blocks.append(Block(schema, values, numbers, order))
