"""A reduction of many tensors at some steps, as an array: tensors down, steps across."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from smdebug.reductions import Array, compute_reduction
from smdebug.storage.catalog import one_array
from smdebug.storage.raw import VALUE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from smdebug.mode_keys import ModeKeys
    from smdebug.trials.trial import Trial

# So many tensors are asked at which steps they were saved.
_ASKED = 16
# The place of a tensor that was saved at none of the steps.
_NOWHERE = np.iinfo(np.int64).max
# Values that are read to be reduced, in memory together.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Grid:
    """The numbers, and what they belong to.

    Attributes:
        names: the tensors, in the order in which training came across them.
        steps: in the numbering that was asked for.
        values: one row a tensor, one column a step.
        present: where there is a number; elsewhere the values say nothing.
        computed: whether any was computed from values, because it was not saved.
        left_out: how many more tensors there are.
        broken: in how many of those a saved number is not finite.
    """

    names: list[str]
    steps: list[int]
    values: Array
    present: Array
    computed: bool
    left_out: int
    broken: int


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


def read_grid(
    trial: Trial,
    names: list[str],
    steps: list[int],
    reduction: str,
    mode: ModeKeys,
    worker: str | None = None,
    rows: int | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> Grid:
    """Reads a reduction of tensors at steps: the saved one, else computed from the values.

    Args:
        trial: the run.
        names: the tensors.
        steps: in the numbering of the mode.
        reduction: as the index spells it.
        mode: the numbering of the steps.
        worker: whose; of every tensor the first one's that has it when None.
        rows: so many tensors, evenly spread; all when None.
        tell: told how many of how many steps are done.
    """
    number = {name: place for place, name in enumerate(names)}
    values = np.full((len(names), len(steps)), np.nan)
    saved = np.zeros(values.shape, bool)
    order = np.full(len(names), _NOWHERE)
    for column, step in enumerate(steps):
        table = _rows_at(trial, step, mode, [reduction, "position"])
        places, table = _of_tensors(table, number, worker)
        values[places, column] = table[reduction].to_numpy()
        saved[places, column] = table[reduction].is_valid().to_numpy()
        np.minimum.at(order, places, table["position"].to_numpy())
        if tell is not None:
            tell(column + 1, len(steps))
    ordered = np.argsort(order, kind="stable")[: int((order < _NOWHERE).sum())]
    kept = ordered if rows is None else ordered[spread(len(ordered), rows)]
    hidden = np.setdiff1d(ordered, kept)
    broken = (saved[hidden] & ~np.isfinite(values[hidden])).any(axis=1)
    shown = [names[place] for place in kept.tolist()]
    present = saved[kept]
    grid = Grid(
        shown, steps, values[kept], present, False, len(hidden), int(broken.sum())
    )  # fmt: skip
    if present.all():
        return grid
    return _computed(trial, grid, reduction, mode, worker)


def _computed(trial: Trial, grid: Grid, reduction: str, mode: ModeKeys, worker: str | None) -> Grid:
    """Fills in what was not saved, where the values were."""
    number = {name: place for place, name in enumerate(grid.names)}
    values, present = grid.values.copy(), grid.present.copy()
    for column in np.flatnonzero(~grid.present.all(axis=0)).tolist():
        table = _rows_at(trial, grid.steps[column], mode, VALUE_COLUMNS)
        places, table = _of_tensors(table, number, worker)
        missing = np.flatnonzero(~present[places, column])
        for some in _some(missing, table["length"].to_pylist()):
            for row, value in zip(some, trial.row_values(table.take(some)), strict=True):
                if value is not None and value.dtype.kind not in "USO":
                    values[places[row], column] = compute_reduction(value, reduction)
                    present[places[row], column] = True
    computed = bool((present & ~grid.present).any())
    return replace(grid, values=values, present=present, computed=computed)


def _rows_at(trial: Trial, step: int, mode: ModeKeys, columns: list[str]) -> pa.Table:
    place = trial.known_global_step(mode, step)
    wanted = list(dict.fromkeys([*columns, "tensor", "worker"]))
    return trial.rows_between(*((0, 0) if place is None else (place, place + 1)), wanted)


def _of_tensors(table: pa.Table, row: dict[str, int], worker: str | None) -> tuple[Array, pa.Table]:
    """The rows of the wanted tensors, one for each, and which of them they are."""
    if worker is not None and table.num_rows:
        table = table.filter(_among(table["worker"], {worker: 0}) >= 0)
    rows = _among(table["tensor"], row)
    # Rows are sorted by worker: of several the first one stays.
    wanted = np.flatnonzero(rows >= 0)
    _, first = np.unique(rows[wanted], return_index=True)
    kept = wanted[first]
    return rows[kept], table.take(kept)


def _among(column: pa.ChunkedArray, known: dict[str, int]) -> Array:
    """For every row of a column of text its number; -1 where it has none."""
    array = one_array(column)
    numbers = np.array([known.get(each, -1) for each in array.dictionary.to_pylist()], np.int64)
    return numbers[array.indices.to_numpy(zero_copy_only=False)] if len(array) else numbers[:0]


def _some(places: Array, lengths: list[int | None]) -> Iterator[list[int]]:
    some: list[int] = []
    size = 0
    for place in places.tolist():
        if size > _MOST_BYTES:
            yield some
            some, size = [], 0
        some.append(place)
        size += lengths[place] or 0
    if some:
        yield some
