"""What is handed to a writer: the tensors of one step, which from then on are the writer's."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from smdebug.exceptions import SMDebugValueError
from smdebug.reductions import REDUCTION_NAMES
from smdebug.storage.format.dtypes import check_dtype, dtype_of
from smdebug.storage.format.keys import LAST_STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from smdebug.histogram import Histogram
    from smdebug.mode_keys import ModeKeys
    from smdebug.reductions import Array

_REDUCTIONS = frozenset(REDUCTION_NAMES)
# What a tensor weighs beside its bytes until it is published, measured: objects of Python.
ENTRY_BYTES = 600


@dataclass(frozen=True)
class Entry:
    """One tensor at one step.

    Attributes:
        name: the tensor's name.
        value: the raw value, when it is saved. The writer reads it later on another thread: hand
            over a copy, not memory that training goes on to change.
        reductions: saved reductions, named as `smdebug.reductions.REDUCTION_NAMES`.
        shape: of the tensor; needed only without a value.
        dtype: the element type's name; needed only without a value.
        time: seconds since 1970, when it differs from the step's.
        original_name: the name in the framework's graph, when it is another one; format v1 keeps
            it beside a shape.
        position: its place among the tensors of the batch, in the order they were computed; None
            for the order of the list.
        histogram: how its numbers are spread; for TensorBoard, not for the run.
    """

    name: str
    value: Array | None = None
    reductions: Mapping[str, float] = field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    time: float | None = None
    original_name: str | None = None
    position: int | None = None
    histogram: Histogram | None = None

    def __post_init__(self) -> None:
        if self.value is not None:
            check_dtype(self.value.dtype)
        if not self.reductions.keys() <= _REDUCTIONS:
            unknown = sorted(set(self.reductions) - _REDUCTIONS)
            raise SMDebugValueError(
                f"tensor {self.name} has unknown reductions {', '.join(map(str, unknown))}; "
                f"expected some of {', '.join(REDUCTION_NAMES)}"
            )
        if not self.name.isascii():
            try:
                self.name.encode()
            except UnicodeEncodeError as error:
                raise SMDebugValueError(
                    f"a tensor's name must be text that UTF-8 can hold, got {self.name!r}"
                ) from error

    @property
    def nbytes(self) -> int:
        """What the entry weighs in the writer's queue."""
        return ENTRY_BYTES + (0 if self.value is None else self.value.nbytes)

    @property
    def number(self) -> float | None:
        """Its value, if it is one real number."""
        if self.value is None or self.value.size != 1 or self.value.dtype.kind in "USOc":
            return None
        return float(self.value.reshape(())[()])


@dataclass(frozen=True, eq=False)
class BlockSchema:
    """The tensors of a block, in order. Made once and used at many steps: keep it, do not copy it.

    Attributes:
        names: the tensors' names.
        dtypes: the names of their element types.
        shapes: their shapes.
    """

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Block:
    """Many tensors of one step of which the same is saved: columns instead of entries.

    Attributes:
        layout: which tensors.
        values: their raw values, when they are saved: plain C-contiguous numbers, at least two in
            each. As with an entry, the writer reads them later.
        numbers: their values, when they are saved and have one element each that float64 holds.
        reductions: their reductions, an array of float64 each.
        positions: their places among the tensors of the batch, as an entry has one; None for the
            order of the layout, behind what is before the block.
    """

    layout: BlockSchema
    values: Sequence[Array] | None = None
    reductions: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    positions: npt.NDArray[np.int64] | None = None
    numbers: npt.NDArray[np.float64] | None = None

    @property
    def nbytes(self) -> int:
        """What the block weighs while it waits to be written."""
        numbers = len(self.layout.names) * (100 + 8 * len(self.reductions))
        return numbers + sum(value.nbytes for value in self.values or ())

    def entries(self) -> Iterator[Entry]:
        """The same, tensor by tensor."""
        layout = self.layout
        for place, name in enumerate(layout.names):
            yield Entry(
                name,
                self._value(place),
                {key: float(column[place]) for key, column in self.reductions.items()},
                layout.shapes[place],
                layout.dtypes[place],
            )

    def _value(self, place: int) -> Array | None:
        if self.numbers is not None:
            dtype, shape = self.layout.dtypes[place], self.layout.shapes[place]
            return np.full(shape, self.numbers[place], dtype_of(dtype))
        return None if self.values is None else self.values[place]


@dataclass
class StepBatch:
    """Tensors of one step; a step may come in several batches.

    Attributes:
        placed: how many tensors were put into it in the order they were computed; whoever does so
            gives them their positions and counts on.
    """

    step: int
    mode: ModeKeys
    mode_step: int
    entries: list[Entry]
    time: float = field(default_factory=clock.time)
    blocks: list[Block] = field(default_factory=list)
    placed: int = 0

    def __post_init__(self) -> None:
        for name, number in (("step", self.step), ("mode_step", self.mode_step)):
            if not isinstance(number, (int, np.integer)) or not 0 <= number <= LAST_STEP:
                raise SMDebugValueError(
                    f"{name} must be an integer from 0 to {LAST_STEP}, got {number!r}"
                )

    def all_entries(self) -> Iterator[Entry]:
        """Every tensor as an entry, also those of blocks."""
        yield from self.entries
        for block in self.blocks:
            yield from block.entries()

    @property
    def nbytes(self) -> int:
        """What the batch weighs in the writer's queue."""
        entries = sum(entry.nbytes for entry in self.entries)
        return entries + sum(block.nbytes for block in self.blocks)


# Not frozen: one is made at every saving step, in the training thread.
@dataclass(eq=False)
class PendingBatch:
    """A batch that the writer's thread makes: what training need not wait for happens there.

    Attributes:
        step: the step it will be of.
        nbytes: what it weighs until it is made; from then on the batch's own weight counts.
        make: makes the batch.
        release: called when the memory of the batch is no longer needed, written or not.
    """

    step: int
    nbytes: int
    make: Callable[[], StepBatch]
    release: Callable[[], None]
