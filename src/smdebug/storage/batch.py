"""Batches: the tensors of one step that are handed over to a writer, which then owns them."""

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
# Memory of a tensor's Python objects, in addition to its bytes, until it is published: measured.
ENTRY_BYTES = 600


@dataclass(frozen=True)
class Entry:
    """One tensor at one step.

    Attributes:
        name: the tensor's name.
        value: the raw value, when it is saved. The writer reads it later on another thread: hand
            over a copy, not memory that training will change.
        reductions: saved reductions, named as `smdebug.reductions.REDUCTION_NAMES`.
        shape: of the tensor; needed only without a value.
        dtype: the element type's name; needed only without a value.
        time: seconds since 1970, when it differs from the step's.
        original_name: the name in the framework's graph, if it differs; format v1 keeps it with
            the shape.
        position: its position among the tensors of the batch, in execution order; None for the
            order of the list.
        histogram: its histogram, for TensorBoard; not part of the run.
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
                f"Unknown reductions of tensor {self.name}: {', '.join(map(str, unknown))}. "
                f"Choose from {', '.join(REDUCTION_NAMES)}."
            )
        if not self.name.isascii():
            try:
                self.name.encode()
            except UnicodeEncodeError as error:
                raise SMDebugValueError(
                    f"a tensor's name must be a string that UTF-8 can encode, got {self.name!r}"
                ) from error

    @property
    def nbytes(self) -> int:
        """How many bytes the entry takes until it is published."""
        return ENTRY_BYTES + (0 if self.value is None else self.value.nbytes)

    @property
    def number(self) -> float | None:
        """Its value if it is a single real number, else None."""
        if self.value is None or self.value.size != 1 or self.value.dtype.kind in "USOc":
            return None
        return float(self.value.reshape(())[()])


@dataclass(frozen=True, eq=False)
class BlockSchema:
    """The tensors of a block, in order. Create it once for many steps: it is compared by identity.

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
    """Many tensors of one step with the same settings: columns instead of entries.

    Attributes:
        schema: the tensors.
        values: their raw values, when they are saved: plain C-contiguous numbers, at least two in
            each. As with an entry, the writer reads them later.
        numbers: their values, when they are saved and are single elements that fit float64.
        reductions: their reductions, an array of float64 each.
        positions: their positions among the tensors of the batch, as an entry has one; None for
            the order of the schema, after everything before the block.
    """

    schema: BlockSchema
    values: Sequence[Array] | None = None
    reductions: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    positions: npt.NDArray[np.int64] | None = None
    numbers: npt.NDArray[np.float64] | None = None

    @property
    def nbytes(self) -> int:
        """How many bytes the block takes until it is published."""
        numbers = len(self.schema.names) * (100 + 8 * len(self.reductions))
        return numbers + sum(value.nbytes for value in self.values or ())

    def entries(self) -> Iterator[Entry]:
        """Yield the same tensors one by one."""
        schema = self.schema
        for index, name in enumerate(schema.names):
            yield Entry(
                name,
                self._value(index),
                {key: float(column[index]) for key, column in self.reductions.items()},
                schema.shapes[index],
                schema.dtypes[index],
            )

    def _value(self, index: int) -> Array | None:
        if self.numbers is not None:
            dtype, shape = self.schema.dtypes[index], self.schema.shapes[index]
            return np.full(shape, self.numbers[index], dtype_of(dtype))
        return None if self.values is None else self.values[index]


@dataclass
class StepBatch:
    """Tensors of one step; a step may come in several batches.

    Attributes:
        placed: how many positions are in use by tensors that have one; the caller that assigns
            positions counts them.
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
        """Yield every tensor as an entry, including those of blocks."""
        yield from self.entries
        for block in self.blocks:
            yield from block.entries()

    @property
    def nbytes(self) -> int:
        """How many bytes the batch takes until it is published."""
        entries = sum(entry.nbytes for entry in self.entries)
        return entries + sum(block.nbytes for block in self.blocks)


# Not frozen, which is faster: the training thread makes one at every saving step.
@dataclass(eq=False)
class PendingBatch:
    """A batch that the writer thread makes, so that training does not wait for reductions.

    Attributes:
        step: the step of the batch.
        nbytes: how many bytes it takes until it is made; then the batch's own size counts.
        make: makes the batch.
        release: called when the memory of the batch is no longer needed, written or not.
    """

    step: int
    nbytes: int
    make: Callable[[], StepBatch]
    release: Callable[[], None]
