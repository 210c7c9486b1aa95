"""A stretch of steps of a trial as rules see it: matrices of numbers, steps by tensors.

The index rows of the stretch are read once for all rules. A reduction that was not saved is
computed from the raw tensor where that was, for all rules at once, when the first asks for it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from smdebug.mode_keys import ModeKeys
from smdebug.reductions import COUNTS, compute_reductions
from smdebug.storage.arrow import from_numpy, to_numpy
from smdebug.storage.raw_tensors import VALUE_COLUMNS
from smdebug.storage.segment_summary import mode_numbers, one_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from smdebug.reductions import Array
    from smdebug.trials.trial import Trial

logger = logging.getLogger("smdebug.rules")

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_KEYS = ["step", "mode", "mode_step", "worker", "tensor", "time", "position"]
# How much of raw tensors is held at a time.
_CHUNK_BYTES = 64 << 20
# Complex numbers have no order; these they have.
_COMPLEX = frozenset({"l1", "l2", *COUNTS})


class Column(NamedTuple):
    """One tensor of one worker."""

    tensor: str
    worker: str


class RawValue(NamedTuple):
    """A tensor itself, at one step."""

    step: int
    column: Column
    array: Array


@dataclass(frozen=True, eq=False)
class Table:
    """A number for every step and column.

    Attributes:
        steps: the global steps, ascending.
        columns: the tensors.
        values: the numbers, a row per step and a column per tensor; NaN where there is none.
        present: where there is a number, which may itself be NaN.
        rows: where in the block the numbers stand; -1 where there is none.
    """

    steps: Ints
    columns: list[Column]
    values: Floats
    present: Bools
    rows: Ints


class StepBlock:
    """The saved steps `begin <= step < end` of a trial.

    Args:
        trial: the trial; it must not be refreshed while the block is read.
        begin: the first global step.
        end: the one behind the last.
        reads: the reductions that will be asked for.

    Attributes:
        trial: the trial.
        steps: the global steps, ascending.
        times: when each of them began, in seconds since 1970.
    """

    def __init__(self, trial: Trial, begin: int, end: int, reads: Iterable[str]) -> None:
        self.trial = trial
        self._reads = tuple(dict.fromkeys(reads))
        needed = list(dict.fromkeys([*_KEYS, *VALUE_COLUMNS, *self._reads]))
        self._rows = trial.rows_between(begin, end, needed)
        tensors, workers = one_array(self._rows["tensor"]), one_array(self._rows["worker"])
        names, of_worker = tensors.dictionary.to_pylist(), workers.dictionary.to_pylist()
        width = max(len(of_worker), 1)
        pairs = _codes(tensors) * width + _codes(workers)
        used, self._column_of = _numbered(pairs)
        self.columns = [Column(names[pair // width], of_worker[pair % width]) for pair in used]
        steps: Ints = to_numpy(self._rows["step"])
        self.steps, first, self._step_of = np.unique(steps, return_index=True, return_inverse=True)
        self._mode, self._mode_step = self._modes_of_steps(first)
        self.times = np.full(len(self.steps), np.inf)
        np.fmin.at(self.times, self._step_of, to_numpy(self._rows["time"]))
        self._numbers: dict[str, tuple[Floats, Bools]] = {}
        self._computed = np.zeros(len(steps), bool)

    def __len__(self) -> int:
        return len(self.steps)

    def mode(self, step: int) -> tuple[ModeKeys, int]:
        """The mode of one of its steps, and its number within the mode."""
        place = int(np.searchsorted(self.steps, step))
        return ModeKeys(int(self._mode[place])), int(self._mode_step[place])

    def mode_steps(self, steps: Ints) -> Ints:
        """The numbers of its steps within their modes."""
        return self._mode_step[np.searchsorted(self.steps, steps)]

    def table(
        self, reduction: str, choose: Callable[[str], bool], mode: ModeKeys | None = None
    ) -> Table:
        """A reduction of the chosen tensors.

        Args:
            reduction: one of those the block was made for.
            choose: whether a tensor of this name is wanted.
            mode: only the steps of this mode.

        Returns:
            The table; a tensor of which neither the reduction nor the value was saved is left out.
        """
        rows = self._chosen(choose, mode)
        values, present = self._number(reduction)
        missing = rows[~present[rows] & ~self._computed[rows]]
        if len(missing):
            self._compute(missing)
        rows = rows[present[rows]]
        return self._laid_out(rows, values[rows])

    def cells(self, choose: Callable[[str], bool], mode: ModeKeys | None = None) -> Table:
        """Where the chosen tensors were saved, whatever was saved of them; a table without numbers.

        Several reductions of the same tensors are laid on it with `numbers`.
        """
        rows = self._chosen(choose, mode)
        return self._laid_out(rows, np.full(len(rows), np.nan))

    def numbers(
        self, reduction: str, table: Table, where: Bools | None = None
    ) -> tuple[Floats, Bools]:
        """A reduction for the cells of a table, and where it is known.

        Args:
            reduction: one of those the block was made for.
            table: the cells.
            where: only for these; what is not asked for is not computed from raw tensors either.
        """
        wanted = table.present if where is None else table.present & where
        rows = table.rows[wanted]
        values, present = self._number(reduction)
        missing = rows[~present[rows] & ~self._computed[rows]]
        if len(missing):
            self._compute(missing)
        numbers, known = np.full(wanted.shape, np.nan), np.zeros(wanted.shape, bool)
        numbers[wanted], known[wanted] = (
            np.where(present[rows], values[rows], np.nan),
            present[rows],
        )
        return numbers, known

    def has_value(self, table: Table) -> Bools:
        """Where the tensors themselves were saved, for every cell of a table."""
        found: Bools = np.where(table.present, self._has_value()[table.rows], False)
        return found

    def raw(
        self, choose: Callable[[str], bool], mode: ModeKeys | None = None
    ) -> Iterator[RawValue]:
        """The chosen tensors themselves, by step and in the order they were saved."""
        rows = self._chosen(choose, mode)
        # Most rows may have reductions only.
        rows = rows[self._has_value()[rows]]
        positions = to_numpy(self._rows["position"])
        rows = rows[np.lexsort((positions[rows], self._step_of[rows]))]
        for chunk in self._chunks(rows):
            values = self.trial.row_values(self._rows.take(from_numpy(chunk)))
            for place, value in zip(chunk.tolist(), values, strict=True):
                if value is not None:
                    column = self.columns[self._column_of[place]]
                    yield RawValue(int(self.steps[self._step_of[place]]), column, value)

    def positions(self, table: Table) -> Ints:
        """The order in which the tensors of each step were computed, for every cell of a table."""
        found: Ints = to_numpy(self._rows["position"]).astype(np.int64)
        return np.where(table.present, found[table.rows], np.iinfo(np.int64).max)

    def sizes(self, table: Table, unknown: int = 0) -> Ints:
        """The number of elements, for every cell of a table; `unknown` where it is not known."""
        return np.where(table.present, self._row_sizes(unknown)[table.rows], unknown)

    # ---- inside

    def _row_sizes(self, unknown: int) -> Ints:
        """The number of elements of every row."""
        shapes = one_array(self._rows["shape"])
        lengths = to_numpy(shapes.value_lengths(), null=-1)
        counts = np.where(lengths == 0, 1, unknown)
        inside = np.flatnonzero(lengths > 0)
        if len(inside):
            starts = np.concatenate([[0], np.cumsum(lengths[inside])[:-1]])
            counts[inside] = np.multiply.reduceat(to_numpy(shapes.flatten()), starts)
        return counts

    def _modes_of_steps(self, first: Ints) -> tuple[Ints, Ints]:
        """Mode and mode step of every step; `first` says where its first row stands."""
        mode: Ints = mode_numbers(one_array(self._rows["mode"]))
        mode_step: Ints = to_numpy(self._rows["mode_step"])
        chosen = first
        differs = (mode != mode[first][self._step_of]) | (
            mode_step != mode_step[first][self._step_of]
        )
        if differs.any():
            # A resumed run has saved the step again: as with numbers, the newest rows count.
            order = np.argsort(to_numpy(self._rows["seq"]), kind="stable")
            chosen = np.array(first)
            chosen[self._step_of[order]] = order
        return mode[chosen], mode_step[chosen]

    def _laid_out(self, rows: Ints, values: Floats) -> Table:
        """A table of the values of some rows."""
        steps, row = _numbered(self._step_of[rows])
        columns, column = _numbered(self._column_of[rows])
        shape = (len(steps), len(columns))
        matrix, places = np.full(shape, np.nan), np.full(shape, -1, np.int64)
        matrix[row, column], places[row, column] = values, rows
        return Table(
            self.steps[steps], [self.columns[each] for each in columns], matrix, places >= 0, places
        )

    def _chosen(self, choose: Callable[[str], bool], mode: ModeKeys | None) -> Ints:
        """The rows of the chosen tensors."""
        wanted = np.array([choose(column.tensor) for column in self.columns], bool)
        if not wanted.any():
            return np.zeros(0, np.int64)
        chosen = wanted[self._column_of]
        if mode is not None and mode is not ModeKeys.GLOBAL:
            chosen &= (self._mode == mode.value)[self._step_of]
        return np.flatnonzero(chosen)

    def _has_value(self) -> Bools:
        """The rows whose tensors were saved themselves; empty ones always are."""
        saved: Bools = self._row_sizes(1) == 0
        for name in ("offset", "value"):
            saved |= to_numpy(one_array(self._rows[name]).is_valid())
        return saved

    def _number(self, reduction: str) -> tuple[Floats, Bools]:
        """A reduction of all rows, and where it is known."""
        if reduction not in self._numbers:
            column = one_array(self._rows[reduction])
            values = to_numpy(column).astype(np.float64)
            present = to_numpy(column.is_valid())
            # Written to when it is computed.
            self._numbers[reduction] = (np.array(values), np.array(present))
        return self._numbers[reduction]

    def _compute(self, rows: Ints) -> None:
        """Computes what rules will ask for from the values of rows, as far as they are there."""
        scalar = one_array(self._rows["value"]).take(from_numpy(rows))
        known = to_numpy(scalar.is_valid())
        values = to_numpy(scalar)[known]
        for name in self._reads:
            numbers, present = self._number(name)
            places = rows[known]
            fresh = ~present[places]
            numbers[places[fresh]] = _of_scalars(values[fresh], name)
            present[places] = True
        # Of most rows only numbers were saved; looking for their values one by one takes long.
        saved = to_numpy(one_array(self._rows["offset"]).is_valid())
        saved = saved | (self._row_sizes(unknown=-1) == 0)
        for chunk in self._chunks(rows[~known & saved[rows]]):
            arrays = self.trial.row_values(self._rows.take(from_numpy(chunk)))
            for place, array in zip(chunk.tolist(), arrays, strict=True):
                if array is not None and array.dtype.kind not in "USO":
                    self._put(place, array)
        # Not before: whoever asks next must meet what could not be read, too.
        self._computed[rows] = True

    def _put(self, row: int, array: Array) -> None:
        missing = [name for name in self._reads if not self._number(name)[1][row]]
        if array.dtype.kind == "c":
            missing = [name for name in missing if name.startswith("abs_") or name in _COMPLEX]
        for name, number in compute_reductions(array, missing).items():
            values, present = self._number(name)
            values[row], present[row] = number, True

    def _chunks(self, rows: Ints) -> Iterator[Ints]:
        """Rows with raw values, as many at a time as may be held in memory."""
        if not len(rows):
            return
        lengths = to_numpy(self._rows["length"].take(from_numpy(rows)), null=0)
        group = np.cumsum(lengths) // _CHUNK_BYTES
        for number in np.unique(group):
            yield rows[group == number]


def _codes(column: Any) -> Ints:
    codes: Ints = to_numpy(column.indices).astype(np.int64)
    return codes


def _numbered(codes: Ints) -> tuple[Ints, Ints]:
    """What `np.unique` says of small numbers, a twentieth of the time: they need no sorting."""
    present = np.bincount(codes) > 0 if len(codes) else np.zeros(0, bool)
    number = np.cumsum(present) - 1
    return np.flatnonzero(present), number[codes]


def _of_scalars(values: Floats, name: str) -> Floats:
    """A reduction of tensors that have one element each."""
    plain = name.removeprefix("abs_")
    if plain in ("std", "variance"):
        # As numpy has it: infinity minus infinity.
        return np.where(np.isfinite(values), 0.0, np.nan)
    if plain in COUNTS:
        found = {"nans": np.isnan(values), "infs": np.isinf(values), "zeros": values == 0}
        numbers: Floats = found[plain].astype(np.float64)
        return numbers
    return np.abs(values) if plain != name or plain in ("l1", "l2") else values
