"""A number of many tensors at many steps as an array: tensors down, steps across."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from smdebug.exceptions import SMDebugTypeError
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import compute_reduction
from smdebug.storage.arrow import from_numpy, pa, to_numpy
from smdebug.storage.raw_tensors import VALUE_COLUMNS
from smdebug.storage.segment_summary import mode_numbers, one_array, places_among
from smdebug.trials.selection import pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from smdebug.reductions import Array
    from smdebug.trials.curves import Bools, Floats, Ints
    from smdebug.trials.trial import Trial

    Tell = Callable[[int, int], None]

# How many rows of the index are held at a time; about.
_ROWS = 2_000_000
# So many tensors are asked at which steps they were saved.
_ASKED = 16
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Columns:
    """The steps that the columns of a grid are of; made by `single_steps` or `all_steps`.

    Attributes:
        steps: what each column is called, in the numbering that is asked for.
        begins: its first global step; ascending.
        ends: the one behind its last.
        stretch: how many saved steps a column is made of, at most.
    """

    steps: Ints
    begins: Ints
    ends: Ints
    stretch: int = 1

    def together(self, most: int) -> Iterator[tuple[int, int]]:
        """Columns that lie side by side, at most so many: the first, the one behind the last."""
        first = 0
        for end in range(1, len(self.steps) + 1):
            last = end == len(self.steps)
            if last or end - first >= most or self.ends[end - 1] != self.begins[end]:
                yield first, end
                first = end


@dataclass(frozen=True, eq=False)
class Grid:
    """The numbers, and what they belong to.

    Attributes:
        names: the tensors.
        steps: the first step of each column, in the numbering that was asked for.
        values: a row for each tensor: of the steps of a column the finite number with the largest
            magnitude; one that is not finite where there is no other.
        present: where there is a number; elsewhere the values say nothing.
        bad: where one of the numbers is NaN or infinite.
        stretch: how many saved steps a column is made of, at most.
        computed: whether any number was computed from values, because it was not saved.
        left_out: how many more tensors there are.
        broken: in how many of those a number that was saved is not finite, at these steps.
        absent: tensors of which nothing was saved at these steps.
    """

    names: list[str]
    steps: Ints
    values: Floats
    present: Bools
    bad: Bools
    stretch: int
    computed: bool
    left_out: int
    broken: int
    absent: list[str]

    def filled(self) -> Grid:
        """The same without the columns that hold nothing."""
        kept = self.present.any(axis=0)
        return replace(
            self, steps=self.steps[kept], values=self.values[:, kept],
            present=self.present[:, kept], bad=self.bad[:, kept],
        )  # fmt: skip


def spread(length: int, count: int) -> list[int]:
    """Places in something of a length, evenly spread, the first and the last among them.

    Example:
        >>> spread(100, 3), spread(2, 5)
        ([0, 50, 99], [0, 1])
    """
    if count < 2 or length < 2:
        return [0] if length and count else []
    return sorted({round(place) for place in np.linspace(0, length - 1, min(count, length))})


def common_steps(trial: Trial, names: list[str], mode: ModeKeys, wanted: int = 1) -> list[int]:
    """The steps at which most of some tensors were saved.

    Some of the tensors are asked: those of a collection are mostly saved together.

    Args:
        trial: the run.
        names: the tensors.
        mode: the numbering of the steps.
        wanted: with so many steps, those that fewer tensors have are left out.
    """
    asked = [names[place] for place in spread(len(names), _ASKED)]
    counts = Counter(step for name in asked for step in trial.tensor(name).steps(mode))
    found: list[int] = []
    for least in sorted(set(counts.values()), reverse=True):
        found = sorted(step for step, count in counts.items() if count >= least)
        if len(found) >= wanted:
            break
    return found


def single_steps(trial: Trial, steps: Sequence[int], mode: ModeKeys) -> Columns:
    """A column for each of some steps, in the numbering of a mode."""
    places = {step: trial.known_global_step(mode, step) for step in steps}
    known = sorted((place, step) for step, place in places.items() if place is not None)
    begins = np.array([place for place, _ in known], np.int64)
    return Columns(np.array([step for _, step in known], np.int64), begins, begins + 1)


def all_steps(trial: Trial, most: int) -> Columns:
    """All steps of a trial; where there are more than `most`, some share a column."""
    steps = np.array(trial.steps(), np.int64)
    stretch = max(-(-len(steps) // most), 1)
    begins = steps[::stretch]
    return Columns(begins, begins, np.append(begins[1:], steps[-1:] + 1), stretch)


def read_grid(
    trial: Trial,
    names: Sequence[str],
    number: str,
    columns: Columns,
    mode: ModeKeys,
    worker: str | None = None,
    rows: int | None = None,
    tell: Tell | None = None,
) -> Grid:
    """Reads a number of tensors: the saved one, else computed from the values.

    Args:
        trial: the run.
        names: the tensors; those that nothing was saved of at these steps are left out.
        number: a reduction as the index spells it, or "value" for the only element of tensors.
        columns: the steps.
        mode: only steps of this mode, in its numbering.
        worker: whose; of every tensor and step the first one's that has it when None.
        rows: so many tensors, evenly spread; all when None.
        tell: told how many of how many columns are done; again, where they have to be computed.
    """
    source = _Source(trial, number, columns, mode, worker)
    cells = _Cells(len(names), len(columns.steps))
    seen = np.zeros(len(names), bool)
    lacking = []
    for first, end in source.parts():
        table, places = source.rows(names, first, end)
        saved = to_numpy(table[number].is_valid())
        seen[places.tensor] = True
        cells.add(places.kept(saved), to_numpy(table[number])[saved])
        if not saved.all():
            lacking.append((first, end))
        if tell is not None:
            tell(end, len(columns.steps))
    known = np.flatnonzero(seen)
    shown = known if rows is None else known[spread(len(known), rows)]
    hidden = np.setdiff1d(known, shown)
    broken = int(cells.bad[hidden].any(axis=1).sum())
    some = [names[place] for place in shown.tolist()]
    cells = cells.of(shown)
    computed = False
    for first, end in lacking:
        for places, values in source.computed(some, first, end):
            cells.add(places, values)
            computed = True
        if tell is not None:
            tell(end, len(columns.steps))
    return Grid(
        some, np.where(cells.first < _NEVER, cells.first, columns.steps), cells.values,
        cells.present, cells.bad, columns.stretch, computed, len(hidden), broken,
        [names[place] for place in np.flatnonzero(~seen).tolist()],
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Places:
    """Where numbers belong: the tensor and the column of each, and what its step is called."""

    tensor: Ints
    column: Ints
    shown: Ints

    def kept(self, which: Array) -> _Places:
        return _Places(self.tensor[which], self.column[which], self.shown[which])


class _Cells:
    """The numbers as they come; of those that meet in a cell the largest stays."""

    def __init__(self, rows: int, columns: int) -> None:
        self.values = np.full((rows, columns), np.nan)
        self.present, self.bad = (np.zeros((rows, columns), bool) for _ in range(2))
        self.first = np.full(columns, _NEVER)

    def of(self, rows: Ints) -> _Cells:
        """Those of some rows."""
        part = _Cells(0, 0)
        part.values, part.present, part.bad = self.values[rows], self.present[rows], self.bad[rows]
        part.first = self.first
        return part

    def add(self, places: _Places, values: Floats) -> None:
        np.minimum.at(self.first, places.column, places.shown)
        finite = np.isfinite(values)
        size = np.where(finite, np.abs(values), -1.0)
        # The largest is written last, and stays.
        order = np.argsort(size, kind="stable")
        tensor, column = places.tensor[order], places.column[order]
        old = self.values[tensor, column]
        better = size[order] > np.where(np.isfinite(old), np.abs(old), -1.0)
        better |= ~self.present[tensor, column]
        self.values[tensor[better], column[better]] = values[order][better]
        self.present[tensor, column] = True
        self.bad[places.tensor[~finite], places.column[~finite]] = True


@dataclass(frozen=True, eq=False)
class _Source:
    """Where the numbers come from; see `read_grid`."""

    trial: Trial
    number: str
    columns: Columns
    mode: ModeKeys
    worker: str | None

    def parts(self) -> Iterator[tuple[int, int]]:
        """Columns that are read together: about `_ROWS` rows."""
        width = max(len(self.trial.tensor_names()) * self.trial.num_workers, 1)
        return self.columns.together(max(_ROWS // width // self.columns.stretch, 1))

    def rows(
        self, names: Sequence[str], first: int, end: int, raw: bool = False
    ) -> tuple[pa.Table, _Places]:
        """The rows of some columns, one for each tensor and step; with `raw` all they hold."""
        keys = ["step", "mode", "mode_step", "worker", "tensor", self.number]
        needed = list(dict.fromkeys([*keys, *(VALUE_COLUMNS if raw else ())]))
        begin, behind = int(self.columns.begins[first]), int(self.columns.ends[end - 1])
        table = self.trial.rows_between(begin, behind, needed)
        tensor = places_among(table["tensor"], names)
        kept = tensor >= 0
        if self.mode is not ModeKeys.GLOBAL:
            kept &= mode_numbers(one_array(table["mode"])) == self.mode.value
        if self.worker is not None:
            kept &= places_among(table["worker"], [self.worker]) >= 0
        rows = np.flatnonzero(kept)
        if self.worker is None and self.trial.num_workers > 1:
            # Rows come worker after worker: the first one's is the first.
            step = to_numpy(table["step"])[rows] - begin
            rows = rows[np.unique(tensor[rows] * (behind - begin) + step, return_index=True)[1]]
        table = table.take(from_numpy(rows))
        step = to_numpy(table["step"])
        shown = step if self.mode is ModeKeys.GLOBAL else to_numpy(table["mode_step"])
        column = np.searchsorted(self.columns.begins, step, side="right") - 1
        return table, _Places(tensor[rows], column, shown)

    def computed(
        self, names: Sequence[str], first: int, end: int
    ) -> Iterator[tuple[_Places, Floats]]:
        """What was not saved of some columns, from the values, where those were."""
        table, places = self.rows(names, first, end, raw=True)
        missing = np.flatnonzero(to_numpy(table[self.number].is_null()))
        places = places.kept(missing)
        begin = 0
        for piece in pieces(table.take(from_numpy(missing))):
            numbers = [self._number_of(value) for value in self.trial.row_values(piece)]
            there = np.array([number is not None for number in numbers], bool)
            if there.any():
                values = np.array([number for number in numbers if number is not None], np.float64)
                yield places.kept(begin + np.flatnonzero(there)), values
            begin += piece.num_rows

    def _number_of(self, value: Array | None) -> float | None:
        if value is None or value.dtype.kind in "USO":
            return None
        if self.number != "value":
            try:
                return float(compute_reduction(value, self.number))
            except SMDebugTypeError:
                # Not every reduction of complex numbers is a real one.
                return None
        return float(value.reshape(-1)[0]) if value.size == 1 and value.dtype.kind != "c" else None
