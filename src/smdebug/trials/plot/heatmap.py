"""A reduction of many tensors over many steps as a heat map: tensors down, steps across."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from smdebug.trials.frame_reader import FrameQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smdebug.mode_keys import ModeKeys
    from smdebug.trials.frame import Frame
    from smdebug.trials.index_rows import Bools, Floats, Ints
    from smdebug.trials.trial import Trial

    Progress = Callable[[int, int], None]

# Rows of the index in memory at a time.
_MAX_ROWS = 2_000_000
# How many tensors are asked for the steps at which they were saved.
_ASKED = 16
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class StepColumns:
    """The steps of the columns of a heat map; made by `listed_steps` or `all_steps`.

    Attributes:
        steps: the label of each column, in the numbering of the mode.
        begins: its first global step; ascending.
        listed: the steps in the numbering of the mode, where a column is one step.
        steps_per_column: how many saved steps share a column, at most.
    """

    steps: Ints
    begins: Ints
    listed: tuple[int, ...] | None = None
    steps_per_column: int = 1


@dataclass(frozen=True, eq=False)
class HeatmapData:
    """The numbers of a heat map.

    Attributes:
        tensors: the tensor of each row.
        steps: the first step of each column, in the numbering of the mode.
        values: of the steps of a column the finite number with the largest magnitude; one that is
            not finite where there is no other.
        present: where there is a number.
        non_finite: where one of the numbers is NaN or infinite.
        steps_per_column: how many saved steps share a column, at most.
        computed: whether any number was computed from raw values.
        hidden: how many more tensors there are.
        hidden_non_finite: how many of those have a saved number that is not finite.
        absent: tensors of which nothing was saved at these steps.
    """

    tensors: list[str]
    steps: Ints
    values: Floats
    present: Bools
    non_finite: Bools
    steps_per_column: int
    computed: bool
    hidden: int
    hidden_non_finite: int
    absent: list[str]

    def without_empty_columns(self) -> HeatmapData:
        """Return it without the columns that have no number."""
        kept = self.present.any(axis=0)
        return replace(
            self, steps=self.steps[kept], values=self.values[:, kept],
            present=self.present[:, kept], non_finite=self.non_finite[:, kept],
        )  # fmt: skip


def spread(length: int, count: int) -> list[int]:
    """Return evenly spaced indices into a sequence, including the first and the last.

    Example:
        >>> spread(100, 3), spread(2, 5)
        ([0, 50, 99], [0, 1])
    """
    if count < 2 or length < 2:
        return [0] if length and count else []
    return sorted({round(place) for place in np.linspace(0, length - 1, min(count, length))})


def common_steps(trial: Trial, names: list[str], mode: ModeKeys, wanted: int = 1) -> list[int]:
    """Return the steps at which most of some tensors were saved.

    Only some of the tensors are asked: those of a collection are mostly saved together.

    Args:
        trial: the run.
        names: the tensors.
        mode: the numbering of the steps.
        wanted: how many steps are enough: those that fewer tensors have are then skipped.
    """
    asked = [names[place] for place in spread(len(names), _ASKED)]
    counts = Counter(step for name in asked for step in trial.tensor(name).steps(mode))
    found: list[int] = []
    for least in sorted(set(counts.values()), reverse=True):
        found = sorted(step for step, count in counts.items() if count >= least)
        if len(found) >= wanted:
            break
    return found


def listed_steps(trial: Trial, steps: Sequence[int], mode: ModeKeys) -> StepColumns:
    """Return a column for each of some steps, in the numbering of a mode; unknown ones go."""
    places = {step: trial.known_global_step(mode, step) for step in steps}
    known = sorted((place, step) for step, place in places.items() if place is not None)
    listed = tuple(step for _, step in known)
    begins = np.array([place for place, _ in known], np.int64)
    return StepColumns(np.array(listed, np.int64), begins, listed)


def all_steps(trial: Trial, max_columns: int) -> StepColumns:
    """Return all steps of a trial; if there are more than `max_columns`, some share a column."""
    steps = np.array(trial.steps(), np.int64)
    shared = max(-(-len(steps) // max_columns), 1)
    return StepColumns(steps[::shared], steps[::shared], steps_per_column=shared)


def read_heatmap(
    trial: Trial,
    names: Sequence[str],
    reduction: str,
    columns: StepColumns,
    mode: ModeKeys,
    worker: str | None = None,
    max_tensors: int | None = None,
    progress: Progress | None = None,
) -> HeatmapData:
    """Read a reduction of tensors: the saved one, else computed from raw values.

    Args:
        trial: the run.
        names: the tensors.
        reduction: as the index spells it, or "value" for the element of one-element tensors.
        columns: the steps.
        mode: only steps of this mode, in its numbering.
        worker: of which worker; the first that has a step when None.
        max_tensors: so many tensors, evenly spaced; all when None.
        progress: called with the number of columns that are done and their total; again for those
            that have to be computed.
    """
    query = FrameQuery(
        trial, list(names), (reduction,), mode, worker, columns.listed, compute=False
    )
    cells = _Cells(len(names), columns)
    for frame in query.chunks(_MAX_ROWS):
        cells.add(frame, query.names)
        if progress is not None:
            progress(cells.done, len(columns.steps))
    known = np.flatnonzero(cells.seen)
    shown = known if max_tensors is None else known[spread(len(known), max_tensors)]
    hidden = np.setdiff1d(known, shown)
    computed = False
    if len(shown) and cells.incomplete:
        some = [names[place] for place in shown.tolist()]
        query = FrameQuery(trial, some, (reduction,), mode, worker, columns.listed)
        saved = int(cells.counts[shown].sum())
        cells.counts[:] = 0
        for frame in query.chunks(_MAX_ROWS):
            cells.add(frame, some, shown)
            if progress is not None:
                progress(cells.done, len(columns.steps))
        computed = int(cells.counts.sum()) > saved
    return HeatmapData(
        [names[place] for place in shown.tolist()],
        np.where(cells.first < _NEVER, cells.first, columns.steps),
        cells.values[shown], cells.present[shown], cells.non_finite[shown],
        columns.steps_per_column, computed, len(hidden),
        int(cells.non_finite[hidden].any(axis=1).sum()),
        [names[place] for place in np.flatnonzero(~cells.seen).tolist()],
    )  # fmt: skip


class _Cells:
    """The numbers of a heat map as they are read; of those in one cell the largest stays."""

    def __init__(self, rows: int, columns: StepColumns) -> None:
        self._begins = columns.begins
        shape = (rows, len(columns.steps))
        self.values = np.full(shape, np.nan)
        self.present, self.non_finite = np.zeros(shape, bool), np.zeros(shape, bool)
        self.first = np.full(shape[1], _NEVER)
        self.seen = np.zeros(rows, bool)
        # How many numbers were added to each row.
        self.counts = np.zeros(rows, np.int64)
        self.incomplete = False
        self.done = 0

    def add(self, frame: Frame, names: list[str], rows: Ints | None = None) -> None:
        """Add the numbers of a frame; `rows` are those of the names, in order when None."""
        place = {name: number for number, name in enumerate(names)}
        row = np.array([place[column.tensor] for column in frame.columns], np.int64)
        row = row if rows is None else rows[row]
        column = np.searchsorted(self._begins, frame.global_steps, side="right") - 1
        self.done = int(column[-1]) + 1
        self.seen[row] = True
        self.incomplete |= not np.array_equal(frame.present, frame.saved)
        step, tensor = np.nonzero(frame.present)
        values = frame.values[step, tensor]
        row, column, labels = row[tensor], column[step], frame.steps[step]
        np.add.at(self.counts, row, 1)
        np.minimum.at(self.first, column, labels)
        finite = np.isfinite(values)
        size = np.where(finite, np.abs(values), -1.0)
        # The largest is assigned last, and stays.
        order = np.argsort(size, kind="stable")
        old = self.values[row[order], column[order]]
        better = size[order] > np.where(np.isfinite(old), np.abs(old), -1.0)
        better |= ~self.present[row[order], column[order]]
        best = order[better]
        self.values[row[best], column[best]] = values[best]
        self.present[row, column] = True
        self.non_finite[row[~finite], column[~finite]] = True
