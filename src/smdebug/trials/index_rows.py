"""Rows of the index as NumPy columns, and reductions that were not saved computed from raw values.

Every number that is read from a run goes through here: a frame is a layout of these rows.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from smdebug.mode_keys import ModeKeys
from smdebug.reductions import COUNTS, compute_reductions
from smdebug.storage.arrow import from_numpy, to_numpy
from smdebug.storage.raw_tensors import VALUE_COLUMNS
from smdebug.storage.segment_summary import mode_numbers, one_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from smdebug.reductions import Array
    from smdebug.trials.trial import Trial

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# The column of the index with the elements of one-element tensors.
VALUE = "value"
KEY_COLUMNS = ("step", "mode", "mode_step", "worker", "tensor", "seq")
# Bytes of raw values in memory at a time.
CHUNK_BYTES = 64 << 20
# The reductions of complex numbers; the others need an order.
_COMPLEX = frozenset({"l1", "l2", *COUNTS})


class IndexRows:
    """Rows of the index.

    Args:
        trial: the trial that the rows are of, for raw values.
        table: the rows, with `KEY_COLUMNS`; with the columns of raw values only if reductions that
            were not saved are to be computed.
        reductions: the reductions that will be read; computed together, so that raw values are
            read once.
        strict: raise an error for values that have no reductions; else they have no number.

    Attributes:
        step: the global step of each row.
        mode: the number of its mode.
        mode_step: its step within the mode.
        tensors: the names of the tensors.
        tensor: the index of each row's tensor in `tensors`.
        workers: the names of the workers, sorted.
        worker: the index of each row's worker in `workers`.
    """

    def __init__(
        self, trial: Trial, table: pa.Table, reductions: Iterable[str] = (), strict: bool = False
    ) -> None:
        self.trial = trial
        self._strict = strict
        self.table = table
        self._reductions = tuple(dict.fromkeys(reductions))
        self.step: Ints = to_numpy(table["step"])
        self.mode: Ints = mode_numbers(one_array(table["mode"]))
        self.mode_step: Ints = to_numpy(table["mode_step"])
        self.tensors, self.tensor = _codes(table["tensor"])
        names, codes = _codes(table["worker"])
        order = sorted(range(len(names)), key=names.__getitem__)
        self.workers = [names[code] for code in order]
        self.worker: Ints = np.argsort(order)[codes] if len(codes) else codes
        self._numbers: dict[str, tuple[Floats, Bools]] = {}
        self._computed = np.zeros(len(self.step), bool)

    def __len__(self) -> int:
        return len(self.step)

    def steps(self, mode: ModeKeys) -> Ints:
        """Return the step of each row in the numbering of a mode."""
        return self.step if mode is ModeKeys.GLOBAL else self.mode_step

    @cached_property
    def mode_of_step(self) -> tuple[Ints, Ints]:
        """For each row the mode, and the step within it, of its global step.

        A resumed run may have saved a step again in another mode: the newest rows count.
        """
        steps, number = numbered(self.step)
        newest = np.zeros(len(steps), np.int64)
        order = np.argsort(to_numpy(self.table["seq"]), kind="stable")
        # The last of several assignments stays.
        newest[number[order]] = order
        return self.mode[newest][number], self.mode_step[newest][number]

    @cached_property
    def time(self) -> Floats:
        """When each row was saved, in seconds since 1970; NaN where that is not known."""
        times: Floats = to_numpy(self.column("time"))
        return times

    def column(self, name: str) -> Any:
        """Return a column as an Arrow array."""
        return one_array(self.table[name])

    def reduction(self, name: str, rows: Ints) -> tuple[Floats, Bools]:
        """Return a reduction of some rows, and where it is known.

        It is the saved one, else computed from the raw value, if the rows were read with that.
        """
        values, present = self._number(name)
        missing = rows[~present[rows] & ~self._computed[rows]]
        if len(missing) and "offset" in self.table.column_names:
            self._compute(missing)
        return values[rows], present[rows]

    def sizes(self, unknown: int) -> Ints:
        """Return the number of elements of every row; `unknown` where no shape was saved."""
        shapes = self.column("shape")
        lengths = to_numpy(shapes.value_lengths(), null=-1)
        counts = np.where(lengths == 0, 1, unknown)
        inside = np.flatnonzero(lengths > 0)
        if len(inside):
            starts = np.concatenate([[0], np.cumsum(lengths[inside])[:-1]])
            counts[inside] = np.multiply.reduceat(to_numpy(shapes.flatten()), starts)
        return counts

    def has_value(self) -> Bools:
        """Return which rows have their raw value saved; empty tensors always do."""
        saved: Bools = self.sizes(unknown=1) == 0
        for name in ("offset", VALUE):
            saved |= _valid(self.column(name))
        return saved

    def raw_values(self, rows: Ints) -> Iterator[tuple[int, Array]]:
        """Yield the raw values of those rows that have one, in the given order, in chunks."""
        rows = rows[self.has_value()[rows]]
        if not len(rows):
            return
        lengths = to_numpy(self.table["length"].take(from_numpy(rows)), null=0)
        chunk = np.cumsum(lengths) // CHUNK_BYTES
        for number in np.unique(chunk):
            some = rows[chunk == number]
            values = self.trial.row_values(self.table.take(from_numpy(some)))
            for row, value in zip(some.tolist(), values, strict=True):
                if value is not None:
                    yield row, value

    def _number(self, name: str) -> tuple[Floats, Bools]:
        """Return a reduction of all rows, and where it is known so far."""
        if name not in self._numbers:
            column = self.column(name)
            # Copies: computed reductions are added to them.
            values = np.array(to_numpy(column), np.float64)
            self._numbers[name] = (values, np.array(_valid(column)))
        return self._numbers[name]

    def _compute(self, rows: Ints) -> None:
        """Compute all reductions that will be read of some rows, as far as values were saved."""
        names = [name for name in self._reductions if name != VALUE]
        scalars = self.column(VALUE).take(from_numpy(rows))
        known = _valid(scalars)
        values = to_numpy(scalars)[known]
        for name in names:
            numbers, present = self._number(name)
            fresh = ~present[rows[known]]
            numbers[rows[known][fresh]] = _of_scalars(values[fresh], name)
            present[rows[known]] = True
        # Most rows have reductions only: looking up the values of each would take long.
        saved = _valid(self.column("offset")) | (self.sizes(unknown=-1) == 0)
        for row, array in self.raw_values(rows[~known & saved[rows]]):
            self._add(row, array)
        # Last: a value that cannot be read is an error for the next caller, too.
        self._computed[rows] = True

    def _add(self, row: int, array: Array) -> None:
        if array.dtype.kind in "USO" and not self._strict:
            return
        missing = [name for name in self._reductions if not self._number(name)[1][row]]
        if VALUE in missing:
            missing.remove(VALUE)
            if array.size == 1 and array.dtype.kind != "c":
                values, present = self._number(VALUE)
                values[row], present[row] = float(array.reshape(-1)[0]), True
        if array.dtype.kind == "c" and not self._strict:
            missing = [name for name in missing if name.startswith("abs_") or name in _COMPLEX]
        for name, number in compute_reductions(array, missing).items():
            values, present = self._number(name)
            values[row], present[row] = number, True


def needed_columns(reductions: Iterable[str], raw: bool) -> list[str]:
    """Return the columns of the index that `IndexRows` needs.

    Args:
        reductions: the reductions to read.
        raw: whether those that were not saved are to be computed.
    """
    columns = [*KEY_COLUMNS, *reductions]
    if VALUE in columns:
        # An element has a type of its own.
        columns += ["dtype"]
    return list(dict.fromkeys([*columns, *(VALUE_COLUMNS if raw else ())]))


def numbered(codes: Ints) -> tuple[Ints, Ints]:
    """Return the distinct numbers, sorted, and the index of each number among them.

    What `np.unique` returns; numbers that are close together need no sorting, which takes a
    twentieth of the time.

    Example:
        >>> numbered(np.array([7, 5, 7]))
        (array([5, 7]), array([1, 0, 1]))
    """
    if not len(codes):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    low, high = int(codes.min()), int(codes.max())
    if high - low > 8 * len(codes):
        distinct, inverse = np.unique(codes, return_inverse=True)
        return distinct, inverse
    present = np.bincount(codes - low) > 0
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[codes - low]


def _codes(column: Any) -> tuple[list[str], Ints]:
    """Return the distinct strings of a dictionary column, and the index of each row's."""
    array = one_array(column)
    codes: Ints = to_numpy(array.indices).astype(np.int64)
    names = array.dictionary.to_pylist()
    # Only those that rows have: a dictionary may be that of a whole file.
    used, codes = numbered(codes)
    return [names[code] for code in used.tolist()], codes


def _valid(column: Any) -> Bools:
    found: Bools = to_numpy(column.is_valid())
    return found


def _of_scalars(values: Floats, name: str) -> Floats:
    """Return a reduction of one-element tensors."""
    plain = name.removeprefix("abs_")
    if plain in ("std", "variance"):
        # As NumPy computes it: infinity minus infinity.
        return np.where(np.isfinite(values), 0.0, np.nan)
    if plain in COUNTS:
        found = {"nans": np.isnan(values), "infs": np.isinf(values), "zeros": values == 0}
        numbers: Floats = found[plain].astype(np.float64)
        return numbers
    return np.abs(values) if name.startswith("abs_") or plain in ("l1", "l2") else values
