"""Numbers over the steps: the course of a tensor, and of many tensors as a grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import canonical_reduction, compute_reduction
from smdebug.storage.arrow import pa, pc
from smdebug.storage.catalog import mode_numbers, one_array
from smdebug.storage.raw import VALUE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from smdebug.trials.trial import Trial

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_KEYS = ["step", "mode", "mode_step", "worker", "tensor"]
# How many rows of the index, and how many raw tensors, are held at a time; about.
_ROWS, _RAW = 2_000_000, 256


@dataclass(frozen=True, eq=False)
class Curve:
    """The course of one tensor.

    Attributes:
        name: the tensor.
        steps: ascending.
        values: a number for each of them; NaN and infinity are what was saved.
        mode: the mode they were saved in; None when that is not told apart.
    """

    name: str
    steps: Ints
    values: Floats
    mode: ModeKeys | None = None


@dataclass(frozen=True, eq=False)
class Grid:
    """The courses of many tensors, a row for each.

    Attributes:
        names: the tensors.
        steps: the first step of each column.
        values: of the steps of a column the number with the largest magnitude; NaN where there is
            none.
        bad: where one of them is NaN or infinite.
        stretch: how many saved steps a column is made of, at most.
    """

    names: list[str]
    steps: Ints
    values: Floats
    bad: Bools
    stretch: int


def curve(
    trial: Trial, name: str, reduction: str | None, mode: ModeKeys, worker: str | None
) -> Curve:
    """The course of one tensor.

    Raises:
        SMDebugValueError: there is no such number of it; what there is, is said.
    """
    try:
        steps, values = trial.tensor(name).series(reduction, mode, worker)
    except SMDebugValueError as error:
        if reduction is not None:
            raise
        # What `series` says is for who calls it.
        raise SMDebugValueError(
            f"{name} is not a single number at every step: name a reduction, as in "
            f"plot(reduction='l2'), or a step, as in plot(step=0); {_saved(trial, name)}"
        ) from error
    if values.dtype.kind not in "biuf" and values.dtype.kind != "V":
        raise SMDebugValueError(f"{name} holds {values.dtype}, which cannot be plotted")
    if not len(steps):
        what = "a single number" if reduction is None else f"the reduction {reduction}"
        raise SMDebugValueError(
            f"{what} of {name} was saved at no step in trial {trial.name}; {_saved(trial, name)}"
        )
    return Curve(name, steps, np.asarray(values, np.float64))


def course(trial: Trial, name: str, mode: ModeKeys, worker: str | None) -> list[Curve]:
    """The course of a loss, one curve for each mode; of a loss of many numbers that of its mean."""
    try:
        whole = curve(trial, name, None, mode, worker)
    except SMDebugValueError:
        whole = curve(trial, name, "mean", mode, worker)
    if mode is not ModeKeys.GLOBAL:
        return [Curve(name, whole.steps, whole.values, mode)]
    table = trial.rows(name, ["step", "mode"])
    known, first = np.unique(table["step"].to_numpy(), return_index=True)
    modes = mode_numbers(one_array(table["mode"]))[first][np.searchsorted(known, whole.steps)]
    return [
        Curve(name, whole.steps[modes == each], whole.values[modes == each], ModeKeys(int(each)))
        for each in np.unique(modes)
    ]


def grid(
    trial: Trial,
    names: Sequence[str],
    reduction: str | None,
    mode: ModeKeys,
    worker: str | None,
    most: int,
) -> Grid:
    """The courses of many tensors; where there are more than `most` steps, some share a column."""
    column = "value" if reduction is None else canonical_reduction(reduction)
    steps = np.array([step for step in trial.steps() if step <= trial.last_complete_step], np.int64)
    stretch = max(-(-len(steps) // most), 1)
    columns = -(-len(steps) // stretch)
    values, bad = np.full((len(names), columns), np.nan), np.zeros((len(names), columns), bool)
    first = np.full(columns, np.iinfo(np.int64).max)
    for begin, end in _pieces(trial, steps, stretch):
        found = _numbers(trial, names, column, (begin, end), mode, worker)
        place = np.searchsorted(steps, found.step) // stretch
        np.minimum.at(first, place, found.shown)
        finite = np.isfinite(found.value)
        bad[found.tensor[~finite], place[~finite]] = True
        # The largest is written last, and stays.
        order = np.argsort(np.abs(found.value[finite]), kind="stable")
        rows, at = found.tensor[finite][order], place[finite][order]
        values[rows, at] = found.value[finite][order]
    kept = first < np.iinfo(np.int64).max
    if not kept.any():
        raise SMDebugValueError(
            f"{column} was saved at no step of these tensors; {_saved(trial, names[0])}"
        )
    return Grid(list(names), first[kept], values[:, kept], bad[:, kept], stretch)


@dataclass(frozen=True, eq=False)
class _Numbers:
    tensor: Ints
    step: Ints
    shown: Ints
    value: Floats


def _pieces(trial: Trial, steps: Ints, stretch: int) -> Iterator[tuple[int, int]]:
    """Parts of the run of about `_ROWS` rows, each of whole columns."""
    tensors = max(len(trial.tensor_names()) * trial.num_workers, 1)
    size = max(_ROWS // tensors // stretch, 1) * stretch
    for first in range(0, len(steps), size):
        yield int(steps[first]), int(steps[min(first + size, len(steps)) - 1]) + 1


def _numbers(
    trial: Trial,
    names: Sequence[str],
    column: str,
    between: tuple[int, int],
    mode: ModeKeys,
    worker: str | None,
    raw: bool = False,
) -> _Numbers:
    """The numbers of some steps; of each tensor and step the one of the first worker.

    Args:
        trial: the trial.
        names: the tensors.
        column: of the index.
        between: the first global step and the one behind the last.
        mode: only of this mode.
        worker: only of this worker.
        raw: read where raw tensors lie as well, and compute from them what was not saved.
    """
    needed = [*_KEYS, column, *(VALUE_COLUMNS if raw else ())]
    table = trial.rows_between(*between, list(dict.fromkeys(needed)))
    codes = _numbered(table, names)
    kept = codes >= 0
    if mode is not ModeKeys.GLOBAL:
        kept &= mode_numbers(one_array(table["mode"])) == mode.value
    if worker is not None:
        kept &= np.asarray(pc.equal(table["worker"].cast(pa.string()), worker))
    table, codes = table.filter(pa.array(kept)), codes[kept]
    step = table["step"].to_numpy()
    if worker is None and trial.num_workers > 1:
        # Rows come worker after worker.
        _, once = np.unique(np.stack([codes, step]), axis=1, return_index=True)
        table, codes, step = table.take(pa.array(once)), codes[once], step[once]
    there = ~np.asarray(table[column].is_null())
    if not there.all() and not raw:
        return _numbers(trial, names, column, between, mode, worker, raw=True)
    value = np.array(table[column].to_numpy(), np.float64)
    _compute(trial, table, column, value, there)
    shown = step if mode is ModeKeys.GLOBAL else table["mode_step"].to_numpy()
    return _Numbers(codes[there], step[there], shown[there], value[there])


def _numbered(table: pa.Table, names: Sequence[str]) -> Ints:
    """The place of the tensor of each row among the names; -1 where it is none of them."""
    tensors = one_array(table["tensor"])
    place = pc.index_in(tensors.dictionary, pa.array(names, pa.string())).fill_null(-1)
    # One more, so that a table without rows can be looked up in as well.
    places = np.concatenate([place.to_numpy(zero_copy_only=False), [-1]]).astype(np.int64)
    found: Ints = places[tensors.indices.to_numpy(zero_copy_only=False)]
    return found


def _compute(trial: Trial, table: pa.Table, column: str, value: Floats, there: Bools) -> None:
    """Fills in what was not saved, from the raw tensors where those were."""
    missing = np.flatnonzero(~there)
    for first in range(0, len(missing), _RAW):
        rows = missing[first : first + _RAW]
        for row, array in zip(rows, trial.row_values(table.take(pa.array(rows))), strict=True):
            if array is None or (column == "value" and array.size != 1):
                continue
            number = array.reshape(-1)[0] if column == "value" else compute_reduction(array, column)
            value[row], there[row] = number, True


def _saved(trial: Trial, name: str) -> str:
    """What there is of a tensor, for a person."""
    tensor = trial.tensor(name)
    steps = tensor.steps(show_incomplete_steps=True)
    pairs = tensor.reduction_values(steps[-1]) if steps else {}
    there = [f"abs_{each}" if absolute else each for each, absolute in pairs]
    return f"saved of it are {', '.join(there)}" if there else "no reductions were saved of it"
