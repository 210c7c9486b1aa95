"""Tensors captured at a step, until the writer has them.

The training thread copies; everything else (waiting for a device, reducing, building rows) is done
by `Capture.finish` on the writer thread.
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


# Measured: the Python objects of a step in the queue, besides its tensors.
_BATCH_BYTES = 1000


class Capture(Protocol):
    """Captured tensors: their memory belongs to the hook until it is released.

    Attributes:
        nbytes: their size until they are written.
        tensors: how many they are at most.
        needs_release: whether `release` returns the memory to a pool; other memory is freed with
            the last reference to it.
    """

    nbytes: int
    tensors: int
    needs_release: bool

    def finish(self, batch: StepBatch) -> None:
        """Add what is saved of them to the batch; runs on the writer thread.

        Their positions count from `batch.placed`, in execution order.
        """

    def release(self) -> None:
        """Return the memory, which is no longer needed."""

    def items(self) -> Iterator[tuple[str, SaveRequest, int]]:
        """Yield for every tensor its name, what is saved of it, and how many bytes that is."""

    def totals(self) -> Iterable[tuple[tuple[str, ...], int, int]]:
        """Yield collections, and how many tensors and bytes were captured for them."""


class SingleCapture:
    """The common part of all captures of a single tensor; `finish` is their own.

    Args:
        name: the tensor's name.
        request: what to save of it.
        nbytes: its size.
        held: how much memory it takes until it is written; its size when None.
        time: seconds since 1970, when it differs from the step's.
    """

    tensors = 1
    needs_release = False

    def __init__(
        self,
        name: str,
        request: SaveRequest,
        nbytes: int,
        held: int | None = None,
        time: float | None = None,
    ) -> None:
        self._name = name
        self._request = request
        self._size = saved_bytes(nbytes, request)
        self._time = time
        self.nbytes = ENTRY_BYTES + (nbytes if held is None else held)

    def release(self) -> None:
        """Do nothing: the memory is freed with the last reference to it."""

    def items(self) -> Iterator[tuple[str, SaveRequest, int]]:
        yield self._name, self._request, self._size

    def totals(self) -> Iterable[tuple[tuple[str, ...], int, int]]:
        return [(self._request.collections, 1, self._size)]


class ArrayCapture(SingleCapture):
    """One tensor that is already a NumPy array.

    Args:
        name: the tensor's name.
        array: a copy that nothing else writes to.
        request: what to save of it.
        time: seconds since 1970, when it differs from the step's.
    """

    def __init__(
        self, name: str, array: Array, request: SaveRequest, time: float | None = None
    ) -> None:
        super().__init__(name, request, array.nbytes, time=time)
        self._array = array

    def finish(self, batch: StepBatch) -> None:
        entry = make_entry(self._name, self._array, self._request, batch.placed, self._time)
        batch.entries.append(entry)


class ScalarsCapture:
    """Many numbers that are saved raw: rows of one block instead of an entry each.

    Args:
        schema: their names, types and shapes; reusing one saves encoding it again.
        numbers: their values.
        request: what to save of each.
    """

    needs_release = False

    def __init__(self, schema: BlockSchema, numbers: list[float], request: SaveRequest) -> None:
        self.tensors = len(numbers)
        self.nbytes = 200 + 8 * len(numbers)
        self._schema = schema
        self._numbers = numbers
        self._request = request

    def finish(self, batch: StepBatch) -> None:
        positions = np.arange(batch.placed, batch.placed + self.tensors)
        numbers = np.array(self._numbers, np.float64)
        batch.blocks.append(Block(self._schema, positions=positions, numbers=numbers))

    def release(self) -> None:
        """Do nothing: there is no memory to return."""

    def items(self) -> Iterator[tuple[str, SaveRequest, int]]:
        for name, dtype in zip(self._schema.names, self._schema.dtypes, strict=True):
            yield name, self._request, dtype_of(dtype).itemsize

    def totals(self) -> Iterable[tuple[tuple[str, ...], int, int]]:
        size = sum(size for _, _, size in self.items())
        return [(self._request.collections, self.tensors, size)]


def make_entry(
    name: str, array: Array, request: SaveRequest, position: int, time: float | None = None
) -> Entry:
    """Make the entry of a tensor: its reductions, and its values where they are saved."""
    # Strings have no reductions: the strings themselves are saved instead.
    raw = request.raw or is_string(array.dtype)
    names = reductions_of(array.dtype, request)
    numbers = compute_reductions(array, names) if names else {}
    return Entry(
        name,
        array if raw else None,
        {key: float(number) for key, number in numbers.items()},
        array.shape,
        dtype_name(array.dtype),
        time,
        position=position,
        histogram=None if request.histogram is None else histogram_of(array),
    )


def reduced_entry(
    name: str, array: Array | None, numbers: dict[str, float], shape: tuple[int, ...],
    dtype: np.dtype[Any], request: SaveRequest, position: int, time: float | None = None,
) -> Entry:  # fmt: skip
    """Make the entry of a tensor whose reductions were computed on its device.

    Args:
        name: its name.
        array: its values, where they are saved or a histogram is made of them.
        numbers: its reductions.
        shape: its shape.
        dtype: its type.
        request: what to save of it.
        position: its position in the batch.
        time: seconds since 1970, when it differs from the step's.
    """
    histogram = None if request.histogram is None or array is None else histogram_of(array)
    value = array if request.raw else None
    return Entry(
        name, value, numbers, shape, dtype_name(dtype), time, position=position,
        histogram=histogram,
    )  # fmt: skip


def reductions_of(dtype: np.dtype[Any], request: SaveRequest) -> tuple[str, ...]:
    """Return those of the requested reductions that a tensor of this type has."""
    if is_string(dtype):
        return ()
    if dtype.kind == "c":
        # The others are not real numbers.
        return tuple(n for n in request.reductions if n.startswith("abs_") or n in _COMPLEX)
    return request.reductions


_COMPLEX = ("l1", "l2", "nans", "infs", "zeros")


def saved_bytes(nbytes: int, request: SaveRequest) -> int:
    """Return how many bytes are saved of a tensor of this size, before compression."""
    return nbytes * request.raw + 8 * len(request.reductions)


@dataclass
class StepCapture:
    """What was captured at one step and not handed over yet.

    Attributes:
        step: the step.
        plan: what to save at it; None when only the user saves something at it.
        time: when it began, in seconds since 1970.
        held: tensors to capture if an observed one turns out to be non-finite: by name, with
            their version at that time.
        triggered: the names of the collections that are saved because one was.
        pending: the captures. The writer thread empties the list itself: one that is handed over
            twice, because Ctrl-C came in between, is saved once.
    """

    step: Step
    plan: StepPlan | None
    time: float = field(default_factory=time.time)
    held: dict[str, tuple[Any, object]] = field(default_factory=dict)
    triggered: set[str] = field(default_factory=set)
    pending: list[Capture] = field(default_factory=list)

    def add(self, capture: Capture) -> None:
        """Add a capture."""
        self.pending.append(capture)

    @property
    def last(self) -> Capture | None:
        """The capture that was added last and not handed over; further tensors may join it."""
        return self.pending[-1] if self.pending else None

    def handed_over(self) -> None:
        """Start a new list: the writer has the one so far."""
        self.pending = []


def pending_batch(
    step: Step,
    time: float,
    pending: list[Capture],
    count: Callable[[Capture], None],
    sinks: Sequence[StepSink] = (),
) -> PendingBatch:
    """Wrap the captures of a step for the writer.

    Args:
        step: the step.
        time: when it began.
        pending: the captures, as `StepCapture.pending`.
        count: called with each of them on the writer thread.
        sinks: receive the batch there, too.
    """

    made: list[Capture] = []

    def make() -> StepBatch:
        made[:] = pending
        del pending[: len(made)]
        batch = StepBatch(step.number, step.mode, step.mode_step, [], time)
        for each in made:
            count(each)
            each.finish(batch)
            batch.placed += each.tensors
        if sinks:
            requests = {name: request for each in made for name, request, _ in each.items()}
            for sink in sinks:
                sink.take(batch, requests)
        # Copies that were only reduced are freed now, not when the step is published much later.
        made[:] = [each for each in made if each.needs_release]
        return batch

    def release() -> None:
        for each in made or pending:
            each.release()
        # A kept exception refers to this function, and through it to the tensors.
        made.clear()
        pending.clear()

    nbytes = _BATCH_BYTES + sum([each.nbytes for each in pending])
    return PendingBatch(step.number, nbytes, make, release)
