"""What was taken at a step, until the writer has it.

The training thread copies; everything else (waiting for a device, reducing, putting rows together)
is done by `finish` on the writer's thread.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from smdebug.histogram import histogram_of
from smdebug.reductions import compute_reductions
from smdebug.storage.batch import ENTRY_BYTES, Block, Entry, PendingBatch, StepBatch
from smdebug.storage.format.dtypes import dtype_name, dtype_of, is_string

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from smdebug.hook.plan import SaveRequest, StepPlan
    from smdebug.hook.sinks.base import StepSink
    from smdebug.hook.steps import Step
    from smdebug.reductions import Array
    from smdebug.storage.batch import BlockSchema


# What a step weighs in the queue beside its tensors, measured: objects of Python.
_BATCH_BYTES = 1000


class Capture(Protocol):
    """Tensors that were taken: their memory is the hook's until it is released.

    Attributes:
        nbytes: what they weigh until they are written.
        tensors: how many they are at most.
        lent: the memory is somebody's, to whom `release` gives it back; other memory goes with
            the last reference to it.
    """

    nbytes: int
    tensors: int
    needs_release: bool

    def finish(self, batch: StepBatch) -> None:
        """Adds what is saved of them to the batch; runs on the writer's thread.

        Their positions count from `batch.placed`, in the order they were computed.
        """

    def release(self) -> None:
        """Says that the memory is no longer needed."""

    def items(self) -> Iterator[tuple[str, SaveRequest, int]]:
        """Yields for every tensor its name, what is saved of it, and how many bytes that is."""

    def totals(self) -> Iterable[tuple[tuple[str, ...], int, int]]:
        """Yields collections, and how many tensors and bytes were taken for them."""


class SingleCapture:
    """What is the same of every kind of single tensor; `finish` is the kind's own.

    Args:
        name: the tensor's name.
        want: what is saved of it.
        nbytes: its size.
        held: how much memory it takes until it is written; as much as its size when None.
    """

    tensors = 1
    needs_release = False

    def __init__(self, name: str, want: SaveRequest, nbytes: int, held: int | None = None) -> None:
        self._name = name
        self._want = want
        self._size = saved_bytes(nbytes, want)
        self.nbytes = ENTRY_BYTES + (nbytes if held is None else held)

    def release(self) -> None:
        """The memory goes with the last reference; there is none when the batch is made."""

    def items(self) -> Iterator[tuple[str, SaveRequest, int]]:
        yield self._name, self._want, self._size

    def totals(self) -> Iterable[tuple[tuple[str, ...], int, int]]:
        return [(self._want.collections, 1, self._size)]


class ArrayCapture(SingleCapture):
    """One tensor that is an array already.

    Args:
        name: the tensor's name.
        array: a copy that nobody else writes to.
        want: what is saved of it.
        time: seconds since 1970, when it differs from the step's.
    """

    def __init__(
        self, name: str, array: Array, want: SaveRequest, time: float | None = None
    ) -> None:
        super().__init__(name, want, array.nbytes)
        self._array = array
        self._time = time

    def finish(self, batch: StepBatch) -> None:
        entry = make_entry(self._name, self._array, self._want, batch.placed, self._time)
        batch.entries.append(entry)


class ScalarsCapture:
    """Numbers of which nothing but themselves is saved: rows of one block, not entries each.

    Args:
        layout: their names, types and shapes. One that is used again costs less.
        numbers: their values.
        want: what is saved of each.
    """

    needs_release = False

    def __init__(self, layout: BlockSchema, numbers: list[float], want: SaveRequest) -> None:
        self.tensors = len(numbers)
        self.nbytes = 200 + 8 * len(numbers)
        self._layout = layout
        self._numbers = numbers
        self._want = want

    def finish(self, batch: StepBatch) -> None:
        positions = np.arange(batch.placed, batch.placed + self.tensors)
        numbers = np.array(self._numbers, np.float64)
        batch.blocks.append(Block(self._layout, positions=positions, numbers=numbers))

    def release(self) -> None:
        """There is no memory to give back."""

    def items(self) -> Iterator[tuple[str, SaveRequest, int]]:
        for name, dtype in zip(self._layout.names, self._layout.dtypes, strict=True):
            yield name, self._want, dtype_of(dtype).itemsize

    def totals(self) -> Iterable[tuple[tuple[str, ...], int, int]]:
        size = sum(size for _, _, size in self.items())
        return [(self._want.collections, self.tensors, size)]


def make_entry(
    name: str, array: Array, want: SaveRequest, position: int, time: float | None = None
) -> Entry:
    """Makes the entry of a tensor: its reductions, and itself when it is to be saved."""
    # Text has no reductions: asked for them, the text itself says more than nothing.
    raw = want.raw or is_string(array.dtype)
    names = reductions_of(array.dtype, want)
    numbers = compute_reductions(array, names) if names else {}
    return Entry(
        name,
        array if raw else None,
        {key: float(number) for key, number in numbers.items()},
        array.shape,
        dtype_name(array.dtype),
        time,
        position=position,
        histogram=None if want.histogram is None else histogram_of(array),
    )


def reduced_entry(
    name: str, array: Array | None, numbers: dict[str, float], shape: tuple[int, ...],
    dtype: np.dtype[Any], want: SaveRequest, position: int,
) -> Entry:  # fmt: skip
    """Makes the entry of a tensor whose reductions were computed on its device.

    Args:
        name: its name.
        array: the tensor itself, where it is to be saved or a histogram to be made of it.
        numbers: its reductions.
        shape: its shape.
        dtype: its type.
        want: what is saved of it.
        position: its place in the batch.
    """
    histogram = None if want.histogram is None or array is None else histogram_of(array)
    value = array if want.raw else None
    return Entry(
        name, value, numbers, shape, dtype_name(dtype), position=position, histogram=histogram
    )


def reductions_of(dtype: np.dtype[Any], want: SaveRequest) -> tuple[str, ...]:
    """Those of the wanted reductions that a tensor of this type has."""
    if is_string(dtype):
        return ()
    if dtype.kind == "c":
        # The others are not real numbers.
        return tuple(n for n in want.reductions if n.startswith("abs_") or n in _COMPLEX)
    return want.reductions


_COMPLEX = ("l1", "l2", "nans", "infs", "zeros")


def saved_bytes(nbytes: int, want: SaveRequest) -> int:
    """How many bytes are saved of a tensor of this size, before anything is compressed."""
    return nbytes * want.raw + 8 * len(want.reductions)


@dataclass
class StepCapture:
    """What was taken at one step so far.

    Attributes:
        step: the step.
        plan: what is to be saved at it; None when it is there only for what a user saves.
        time: when it began, in seconds since 1970.
        held: tensors that will be taken if a watched one turns out not to be finite: by name, with
            a mark that tells whether they were changed since.
    """

    step: Step
    plan: StepPlan | None
    time: float = field(default_factory=time.time)
    held: dict[str, tuple[Any, object]] = field(default_factory=dict)
    _taken: list[Capture] = field(default_factory=list)

    def add(self, taken: Capture) -> None:
        """Takes over what was taken."""
        self._taken.append(taken)

    @property
    def holds_anything(self) -> bool:
        """Whether something was taken that nobody has asked for yet."""
        return bool(self._taken)

    def go_on_from(self, early: StepCapture) -> None:
        """Takes over what was taken for this step before it began."""
        # The list itself: whatever Ctrl-C comes between, nothing is in two lists.
        self._taken = early._taken

    @property
    def taken(self) -> list[Capture]:
        """What was taken and not handed over yet: the list itself, which the writer empties."""
        return self._taken

    def handed_over(self) -> None:
        """Says that the writer has what was taken so far."""
        self._taken = []


def pending_batch(
    step: Step,
    time: float,
    taken: list[Capture],
    count: Callable[[Capture], None],
    exports: Sequence[StepSink] = (),
) -> PendingBatch:
    """Wraps what was taken at a step for the writer.

    Args:
        step: the step.
        time: when it began.
        taken: what was taken. The writer's thread empties the list: one that is handed over again,
            because Ctrl-C came before that was noted, is saved once.
        count: is told of each, on the writer's thread.
        exports: are told of the batch there, too.
    """

    made: list[Capture] = []

    def make() -> StepBatch:
        made[:] = taken
        del taken[: len(made)]
        batch = StepBatch(step.number, step.mode, step.mode_step, [], time)
        for each in made:
            count(each)
            each.finish(batch)
            batch.placed += each.tensors
        if exports:
            wants = {name: want for each in made for name, want, _ in each.items()}
            for export in exports:
                export.take(batch, wants)
        # What is saved of them is in the batch: copies that were only reduced go now, and not when
        # the step is published, which may be long after.
        made[:] = [each for each in made if each.needs_release]
        return batch

    def release() -> None:
        for each in made or taken:
            each.release()
        # An error that is kept refers to this function, and through it to the tensors.
        made.clear()
        taken.clear()

    weight = _BATCH_BYTES + sum([each.nbytes for each in taken])
    return PendingBatch(step.number, weight, make, release)
