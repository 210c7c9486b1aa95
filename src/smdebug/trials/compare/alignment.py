"""The rows that two runs have in common, paired step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.arrow import from_numpy, pa, pc, to_numpy
from smdebug.storage.segment_summary import mode_numbers, one_array, places_among

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from smdebug.reductions import Array
    from smdebug.trials.trial import Trial

# So many rows of each index are in memory at a time.
_MOST_ROWS = 100_000
_MOST_NAMED = 10
_KEYS = ["step", "mode", "mode_step", "worker", "tensor", "position"]


@dataclass
class Unmatched:
    """What only one of two runs has.

    Attributes:
        count: how many.
        some: some of their names.
    """

    count: int = 0
    some: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Pairs:
    """Rows that both runs have, as training computed them in the first one.

    Attributes:
        tables: the rows of the first run, and those of the second.
        places: the place of each row in its step and worker of the first run, from 1.
        sizes: how many rows there are in that step.
    """

    tables: tuple[pa.Table, pa.Table]
    places: Array
    sizes: Array

    def part(self, begin: int, end: int) -> Pairs:
        """Some of them."""
        first, second = (each.slice(begin, end - begin) for each in self.tables)
        return Pairs((first, second), self.places[begin:end], self.sizes[begin:end])


class _Rows(NamedTuple):
    table: pa.Table
    keys: Array
    places: Array
    sizes: Array


class Alignment:
    """What two runs have in common, and what only one has.

    Args:
        trials: the two.
        mode: only steps of this mode, by their numbers within it.
        pattern: only tensors in whose names it is found.

    Raises:
        SMDebugValueError: they have no step, no tensor or no worker in common.

    Attributes:
        steps: the common steps.
        tensors: the common tensors.
        number: the column that has the numbers of the steps.
        only: what only the first has, and what only the second has: steps, tensors, workers, and
            rows where all of these are in both.
    """

    def __init__(
        self, trials: tuple[Trial, Trial], mode: ModeKeys, pattern: re.Pattern[str] | None
    ) -> None:
        self._trials = trials
        self._mode = mode
        self.number = "step" if mode is ModeKeys.GLOBAL else "mode_step"
        self.only: tuple[dict[str, Unmatched], dict[str, Unmatched]] = ({}, {})
        steps = [set(each.steps(mode, show_incomplete_steps=True)) for each in trials]
        of = "" if mode is ModeKeys.GLOBAL else f" of mode {mode.name.lower()}"
        self.steps = self._common("steps", steps, f"steps{of}")
        what = "tensors" if pattern is None else f"tensors with {pattern.pattern!r} in their names"
        names = [_names(each, mode, pattern) for each in trials]
        self.tensors = self._common("tensors", names, what)
        self._workers = self._common("workers", [set(each.workers()) for each in trials])
        for only in self.only:
            only["rows"] = Unmatched()

    def _common(self, what: str, sets: list[set[Any]], called: str | None = None) -> list[Any]:
        first, second = sets
        for only, left in zip(self.only, (first - second, second - first), strict=True):
            only[what] = Unmatched(len(left), sorted(left)[:_MOST_NAMED])
        common = sorted(first & second)
        if not common:
            told = [", ".join(map(str, sorted(each)[:3])) or "none" for each in sets]
            raise SMDebugValueError(
                f"the runs must have {called or what} in common to be compared; the first has "
                f"{told[0]}, the second {told[1]}"
            )
        return common

    def parts(self) -> Iterator[list[int]]:
        """The common steps, as many at a time as fit into memory."""
        widths = [len(each.tensor_names()) * len(each.workers()) for each in self._trials]
        at_once = max(_MOST_ROWS // max(*widths, 1), 1)
        for begin in range(0, len(self.steps), at_once):
            yield self.steps[begin : begin + at_once]

    def pairs(self, steps: list[int], columns: list[str]) -> Pairs:
        """The rows of some steps that both runs have; those that only one has are counted."""
        needed = list(dict.fromkeys([*_KEYS, *columns]))
        first, second = (self._rows(each, steps, needed) for each in self._trials)
        _, left, right = np.intersect1d(first.keys, second.keys, True, True)
        for only, rows, common in zip(self.only, (first, second), (left, right), strict=True):
            only["rows"].count += len(rows.keys) - len(common)
        # By step, then by place; workers side by side.
        numbers = to_numpy(first.table[self.number])[left]
        order = np.lexsort((left, first.places[left], numbers))
        left, right = left[order], right[order]
        tables = first.table.take(from_numpy(left)), second.table.take(from_numpy(right))
        return Pairs(tables, first.places[left], first.sizes[left])

    def _rows(self, trial: Trial, steps: list[int], columns: list[str]) -> _Rows:
        """The rows of the steps, by step, worker and place."""
        ends = [trial.known_global_step(self._mode, step) for step in (steps[0], steps[-1])]
        low, high = (0 if step is None else step for step in ends)
        table = trial.rows_between(low, high + 1, columns)
        numbers = to_numpy(table[self.number])
        modes = mode_numbers(one_array(table["mode"]))
        chosen = np.isin(numbers, steps)
        if self._mode is not ModeKeys.GLOBAL:
            chosen &= modes == self._mode.value
        rows = np.flatnonzero(chosen)
        workers = places_among(table["worker"], self._workers)
        positions = to_numpy(table["position"])
        order = rows[np.lexsort((positions[rows], workers[rows], numbers[rows]))]
        groups = numbers[order] * (len(self._workers) + 1) + workers[order]
        places, sizes = _ranks(groups)
        tensors = places_among(table["tensor"], self.tensors)
        kept = np.flatnonzero((tensors[order] >= 0) & (workers[order] >= 0))
        order = order[kept]
        keys = np.searchsorted(steps, numbers[order]).astype(np.int64) * 8 + modes[order]
        keys = keys * len(self._workers) + workers[order]
        keys = keys * len(self.tensors) + tensors[order]
        return _Rows(table.take(from_numpy(order)), keys, places[kept], sizes[kept])


def _names(trial: Trial, mode: ModeKeys, pattern: re.Pattern[str] | None) -> set[str]:
    try:
        names = set(trial.tensor_names(mode=mode))
    except KeyError:
        return set()
    return names if pattern is None else {name for name in names if pattern.search(name)}


def _ranks(groups: Array) -> tuple[Array, Array]:
    """For sorted groups, the place of each row in its group from 1, and the size of the group."""
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]])[: len(groups)])
    sizes = np.diff(np.append(starts, len(groups)))
    places = np.arange(len(groups)) - np.repeat(starts, sizes) + 1
    return places, np.repeat(sizes, sizes)


def other_dtypes(first: pa.Table, second: pa.Table) -> Array:
    """Rows whose dtypes are known in both tables, and differ."""
    texts = [each["dtype"].cast(pa.string()) for each in (first, second)]
    found: Array = to_numpy(pc.not_equal(*texts), null=False)
    return found


def other_shapes(first: pa.Table, second: pa.Table) -> Array:
    """Rows whose shapes are known in both tables, and differ."""
    columns = [one_array(each["shape"]) for each in (first, second)]
    ranks = [to_numpy(pc.list_value_length(each), null=-1) for each in columns]
    differ: Array = (ranks[0] != ranks[1]) & (ranks[0] >= 0) & (ranks[1] >= 0)
    for rank in np.unique(ranks[0][ranks[0] > 0]).tolist():
        rows = np.flatnonzero((ranks[0] == rank) & (ranks[1] == rank))
        sizes = [to_numpy(each.take(from_numpy(rows)).flatten()) for each in columns]
        one, other = (each.reshape(-1, rank) for each in sizes)
        differ[rows] = (one != other).any(axis=1)
    return differ
