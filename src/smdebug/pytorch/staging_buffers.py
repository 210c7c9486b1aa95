"""Staging buffers: many tensors, such as all parameters, copied at once.

Tensors of one size and type, of which the same is saved, become the rows of one matrix, so that the
writer thread reduces all of them with a handful of calls. The memory is reused step after step.

Small tensors of an accelerator are copied into a buffer there, which is transferred to the host in
one piece: reducing each of them on the device would take several kernels that do next to nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from smdebug.hook.capture import make_entry, saved_bytes
from smdebug.pytorch.tensors import DTYPES, on_host, record_event, to_host, to_numpy, wait_for
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
# The largest tensor of an accelerator that is copied there: the copies take its memory, and beyond
# this size a kernel has enough to do.
_MAX_DEVICE_BYTES = 1 << 16
# Where memory can be pinned, so that a transfer does not block.
_DEVICES = ("cpu", "cuda", "xpu")
# How many sets of tensors that were delivered together are cached.
_MAX_PARTIAL = 64


class Slot(NamedTuple):
    """A tensor that has a slot in a buffer."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    request: SaveRequest

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor, request: SaveRequest) -> Slot:
        """Return the slot for a tensor."""
        return cls(name, tuple(tensor.shape), tensor.dtype, tensor.device, request)

    @property
    def nbytes(self) -> int:
        """The size of the tensor."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


class _Group(NamedTuple):
    """Slots of one device, size, type and request: a matrix with a row each.

    Attributes:
        positions: the slots.
        region: where the matrix is: in which region of the memory, and from which element on.
        start: the first element.
        size: the elements of a row.
        schema: the tensors.
        request: what to save of each.
    """

    positions: npt.NDArray[np.int64]
    region: int
    start: int
    size: int
    schema: BlockSchema
    request: SaveRequest

    def matrix(self, region: Any) -> Any:
        """Return the matrix in a region, which is a tensor or an array."""
        count = len(self.positions)
        return region[self.start : self.start + count * self.size].reshape(count, self.size)


def fits_in_buffer(tensor: torch.Tensor) -> bool:
    """Return whether a tensor can have a slot: several real numbers; few on an accelerator."""
    if tensor.numel() < 2 or tensor.is_complex() or tensor.device.type not in _DEVICES:
        return False
    return on_host(tensor) or tensor.nbytes <= _MAX_DEVICE_BYTES


class BufferLayout:
    """Where each of a list of tensors is in a buffer.

    Args:
        slots: the tensors.

    Attributes:
        slots: the tensors, in the given order.
        groups: the matrices.
        regions: device, type and number of elements of each region of the memory.
        members: the slots of each region.
        nbytes: the size of a buffer.
        totals: collections, and how many tensors and bytes are saved for them.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = tuple(slots)
        self.groups: list[_Group] = []
        alike: dict[tuple[torch.device, torch.dtype, int, SaveRequest], list[int]] = {}
        for position, slot in enumerate(slots):
            key = (slot.device, slot.dtype, math.prod(slot.shape), slot.request)
            alike.setdefault(key, []).append(position)
        sizes: dict[tuple[torch.device, torch.dtype], int] = {}
        self.members: list[list[int]] = []
        self.totals: list[tuple[tuple[str, ...], int, int]] = []
        for (device, dtype, size, request), positions in alike.items():
            if (device, dtype) not in sizes:
                sizes[device, dtype] = 0
                self.members.append([])
            region, start = list(sizes).index((device, dtype)), sizes[device, dtype]
            schema = self._schema(positions)
            self.groups.append(
                _Group(np.array(positions, np.int64), region, start, size, schema, request)
            )
            self.members[region] += positions
            aligned = _ALIGNMENT // dtype.itemsize
            sizes[device, dtype] += -(-len(positions) * size // aligned) * aligned
            saved = len(positions) * saved_bytes(size * dtype.itemsize, request)
            self.totals.append((request.collections, len(positions), saved))
        self.regions = [(*key, size) for key, size in sizes.items()]
        self.nbytes = sum(size * dtype.itemsize for _, dtype, size in self.regions)
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
        regions: one tensor per device and type.
        views: the slot of each tensor.
        region_views: the same by region.
    """

    def __init__(self, layout: BufferLayout) -> None:
        # A tensor made in inference mode could not be written to outside it.
        with torch.inference_mode(False):
            self.regions = [
                torch.empty(size, dtype=dtype, device=device)
                for device, dtype, size in layout.regions
            ]
            self.views: list[torch.Tensor] = [torch.empty(0)] * len(layout.slots)
            for group in layout.groups:
                matrix = group.matrix(self.regions[group.region])
                for row, position in enumerate(group.positions.tolist()):
                    self.views[position] = matrix[row].view(layout.slots[position].shape)
            self.region_views = [
                [self.views[position] for position in members] for members in layout.members
            ]


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
        self._region_views = memory.region_views
        self._present = bytearray(len(layout.slots))
        # The positions in the order of delivery; empty when all were copied at once.
        self._order: list[int] = []
        # The regions on the host, and what to wait for before reading them; set by `send`.
        self._host: list[torch.Tensor] = []
        self._events: list[Any] = []
        self.tensors = len(layout.slots)
        self.nbytes = layout.nbytes + 100 * len(layout.slots)

    def fill(self, tensors: list[torch.Tensor]) -> None:
        """Copy all tensors at once: one call for each device and type."""
        with torch.no_grad():
            for members, views in zip(self._layout.members, self._region_views, strict=True):
                torch._foreach_copy_(views, [tensors[position] for position in members])
        self._present = bytearray(b"\x01") * len(self._present)

    def put(self, position: int, tensor: torch.Tensor) -> None:
        """Copy one tensor; a second one replaces the first."""
        self._views[position].copy_(tensor)
        self._present[position] = 1
        self._order.append(position)

    def send(self) -> None:
        """Start transferring what is on a device to the host; once, also after Ctrl-C."""
        if self._memory is None or self._host:
            return
        regions = self._memory.regions
        devices = {each.device for each in regions if not on_host(each)}
        host = [to_host(each) if each.device in devices else each for each in regions]
        self._events = [record_event(device) for device in devices]
        self._host = host

    def finish(self, batch: StepBatch) -> None:
        positions = self._execution_order(batch.placed)
        self.send()
        for event in self._events:
            wait_for(event)
        arrays = [to_numpy(region) for region in self._host]
        whole, present = all(self._present), np.frombuffer(self._present, np.bool_)
        for group in self._layout.groups:
            matrix = group.matrix(arrays[group.region])
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
