"""Many tensors of the host at once, as those of all parameters are: copied into rows.

Tensors of one size and type, of which the same is saved, become the rows of one matrix, so that
the writer's thread reduces all of them with a handful of calls. The memory is used again and again.
"""

from __future__ import annotations

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
# Larger raw tensors are written one by one: their checksums are computed beside the writing.
_LARGE = 1 << 20
# How many sets of tensors that were there together are remembered.
_MOST_PARTIAL = 64


class Row(NamedTuple):
    """A tensor that has its place in the rows."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    want: SaveRequest


class _Group(NamedTuple):
    """Rows of one size, type and purpose."""

    places: tuple[int, ...]
    start: int
    size: int
    layout: BlockSchema
    want: SaveRequest
    dtype: torch.dtype
    places_array: npt.NDArray[np.int64]


def fits_in_rows(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be one of the rows: several real numbers of the host."""
    return tensor.device.type == "cpu" and tensor.numel() > 1 and not tensor.is_complex()


class RowLayout:
    """Where each of a list of tensors lies in a buffer.

    Args:
        rows: the tensors.

    Attributes:
        rows: the tensors, in the order they were given.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)
        self._groups: list[_Group] = []
        self._free: list[_Memory] = []
        alike: dict[tuple[torch.dtype, int, SaveRequest], list[int]] = {}
        for place, row in enumerate(rows):
            key = (row.dtype, _count(row.shape), row.want)
            alike.setdefault(key, []).append(place)
        start = 0
        for (dtype, size, want), places in alike.items():
            layout = self._layout(places)
            array = np.array(places, np.int64)
            self._groups.append(_Group(tuple(places), start, size, layout, want, dtype, array))
            nbytes = len(places) * size * dtype.itemsize
            start += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        self.nbytes = start
        self._partial: dict[tuple[int, ...], BlockSchema] = {}
        self._totals = [
            (group.want.collections, len(group.places), len(group.places) * self._saved(group))
            for group in self._groups
        ]

    def buffer(self) -> RowBuffer:
        """Returns a place for the tensors of one step."""
        return RowBuffer(self, self._free.pop() if self._free else _Memory(self))

    def _layout(self, places: Sequence[int]) -> BlockSchema:
        rows = [self.rows[place] for place in places]
        return BlockSchema(
            tuple(row.name for row in rows),
            tuple(DTYPES[row.dtype].name for row in rows),
            tuple(row.shape for row in rows),
        )

    @staticmethod
    def _saved(group: _Group) -> int:
        return saved_bytes(group.size * group.dtype.itemsize, group.want)


class _Memory:
    """Memory that serves one step after the other: a place for each tensor, in matrices."""

    def __init__(self, layout: RowLayout) -> None:
        # A tensor made in inference mode could not be written to outside of it.
        with torch.inference_mode(False):
            memory = torch.empty(layout.nbytes, dtype=torch.uint8, device="cpu")
            self.views: list[torch.Tensor] = [memory] * len(layout.rows)
            self.matrices: list[Array] = []
            for group in layout._groups:
                nbytes = len(group.places) * group.size * group.dtype.itemsize
                part = memory[group.start : group.start + nbytes]
                matrix = part.view(group.dtype).view(len(group.places), group.size)
                for row, place in enumerate(group.places):
                    self.views[place] = matrix[row].view(layout.rows[place].shape)
                array = part.numpy().view(DTYPES[group.dtype])
                self.matrices.append(array.reshape(len(group.places), group.size))


class RowBuffer:
    """The tensors of one step in their rows.

    Attributes:
        views: for each tensor the place to copy it to.
        present: for each tensor whether that was done.
        order: the places of the tensors in the order they came; empty when all came at once.
    """

    needs_release = True

    def __init__(self, layout: RowLayout, memory: _Memory) -> None:
        self._layout = layout
        # None from when it is given back: another step's from then on.
        self._memory: _Memory | None = memory
        self.views = memory.views
        self.present = bytearray(len(layout.rows))
        self.order: list[int] = []
        self.tensors = len(layout.rows)
        self.nbytes = layout.nbytes + 100 * len(layout.rows)

    def fill(self, tensors: list[torch.Tensor]) -> None:
        """Copies all tensors at once."""
        with torch.no_grad():
            torch._foreach_copy_(self.views, tensors)
        self.present = bytearray(b"\x01") * len(self.present)

    def finish(self, batch: StepBatch) -> None:
        whole = all(self.present)
        positions = self._positions(batch.placed)
        assert self._memory is not None
        for group, matrix in zip(self._layout._groups, self._memory.matrices, strict=True):
            layout, places = group.layout, positions[group.places_array]
            if not whole:
                here = [row for row, place in enumerate(group.places) if self.present[place]]
                if not here:
                    continue
                if len(here) < len(group.places):
                    matrix, places = matrix[here], places[here]
                    layout = self._partial_layout(group, here)
            self._add(batch, layout, matrix, group.want, places)
        if not any(group.want.raw for group in self._layout._groups):
            # Everything is reduced: the memory can serve the next step at once.
            self.release()

    def _positions(self, start: int) -> npt.NDArray[np.int64]:
        """For each tensor when it came, counted from `start`."""
        count = len(self.present)
        positions = np.arange(start, start + count)
        if self.order:
            # A tensor that came twice holds what came last.
            positions[self.order] = np.arange(start, start + len(self.order))
        return positions

    def _partial_layout(self, group: _Group, here: list[int]) -> BlockSchema:
        # Kept: the writer keeps what it knows about a layout too.
        places = tuple(group.places[row] for row in here)
        partial = self._layout._partial
        if places not in partial:
            if len(partial) >= _MOST_PARTIAL:
                # Other parts of it at every step, as of a mixture of experts.
                partial.clear()
            partial[places] = self._layout._layout(places)
        return partial[places]

    @staticmethod
    def _add(
        batch: StepBatch,
        layout: BlockSchema,
        matrix: Array,
        want: SaveRequest,
        positions: npt.NDArray[np.int64],
    ) -> None:
        values = None
        if want.raw:
            values = [row.reshape(shape) for row, shape in zip(matrix, layout.shapes, strict=True)]
            if values[0].nbytes >= _LARGE:
                places = positions.tolist()
                batch.entries.extend(
                    make_entry(name, value, want, place)
                    for name, value, place in zip(layout.names, values, places, strict=True)
                )
                return
        numbers = compute_row_reductions(matrix, want.reductions) if want.reductions else {}
        batch.blocks.append(Block(layout, values, numbers, positions))

    def release(self) -> None:
        """Makes the memory free for another step, if it is not already."""
        memory, self._memory = self._memory, None
        if memory is not None:
            self._layout._free.append(memory)

    def items(self) -> Iterator[tuple[str, SaveRequest, int]]:
        for place, row in enumerate(self._layout.rows):
            if self.present[place]:
                nbytes = _count(row.shape) * row.dtype.itemsize
                yield row.name, row.want, saved_bytes(nbytes, row.want)

    def totals(self) -> Iterable[tuple[tuple[str, ...], int, int]]:
        if all(self.present):
            return self._layout._totals
        return [(want.collections, 1, size) for _, want, size in self.items()]


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
