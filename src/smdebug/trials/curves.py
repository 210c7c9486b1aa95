"""The course of a tensor: numbers over the steps, and which of its numbers are shown."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from smdebug.exceptions import ShapeUnavailableForStep, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import REDUCTION_NAMES
from smdebug.storage.arrow import from_numpy, pc, to_numpy
from smdebug.storage.segment_summary import mode_numbers, one_array

if TYPE_CHECKING:
    from smdebug.trials.trial import Trial

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# Of the reductions that were saved the first of these is shown, where none is asked for.
PREFERRED = tuple(dict.fromkeys(("l2", "abs_l2", "mean", "abs_mean", *REDUCTION_NAMES)))


@dataclass(frozen=True, eq=False)
class Curve:
    """The course of one tensor.

    Attributes:
        name: the tensor.
        steps: ascending.
        values: a number for each of them; NaN and infinity are what was saved.
        mode: the mode they were saved in; GLOBAL when that is not told apart.
        reduction: which reduction of it; None when it is the value itself.
        saved: whether the reduction was saved; else it is computed from the values.
    """

    name: str
    steps: Ints
    values: Floats
    mode: ModeKeys = ModeKeys.GLOBAL
    reduction: str | None = None
    saved: bool = True


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
            f"plot(reduction='l2'), or a step, as in plot(step=0); {what_was_saved(trial, name)}"
        ) from error
    if values.dtype.kind not in "biuf" and values.dtype.kind != "V":
        raise SMDebugValueError(f"{name} holds {values.dtype}, which cannot be plotted")
    if not len(steps):
        what = "a single number" if reduction is None else f"the reduction {reduction}"
        raise SMDebugValueError(
            f"{what} of {name} was saved at no step in trial {trial.name}; "
            f"{what_was_saved(trial, name)}"
        )
    return Curve(name, steps, np.asarray(values, np.float64), reduction=reduction)


def course(trial: Trial, name: str, mode: ModeKeys, worker: str | None) -> list[Curve]:
    """The course of a loss, one curve for each mode; of a loss of many numbers that of its mean."""
    try:
        whole = curve(trial, name, None, mode, worker)
    except SMDebugValueError:
        whole = curve(trial, name, "mean", mode, worker)
    return by_mode(trial, whole, mode)


def by_mode(trial: Trial, whole: Curve, mode: ModeKeys) -> list[Curve]:
    """A curve as one for each mode, in the order in which they begin.

    Args:
        trial: the trial.
        whole: the curve.
        mode: the numbering of its steps; if it is not GLOBAL, that is the one there is.
    """
    if mode is not ModeKeys.GLOBAL:
        return [replace(whole, mode=mode)]
    table = trial.rows(whole.name, ["step", "mode"])
    known, first = np.unique(to_numpy(table["step"]), return_index=True)
    modes = mode_numbers(one_array(table["mode"]))[first][np.searchsorted(known, whole.steps)]
    return [
        replace(
            whole, steps=whole.steps[modes == each], values=whole.values[modes == each],
            mode=ModeKeys(each),
        )
        for each in dict.fromkeys(modes.tolist())
    ]  # fmt: skip


# ---- what was saved, and what is shown of it


def present_reductions(trial: Trial) -> list[str]:
    """The reductions that were saved of any tensor."""
    return [each for each in trial.present_columns() if each in REDUCTION_NAMES]


def saved_reductions(trial: Trial, name: str, step: int) -> list[str]:
    """The reductions that were saved of a tensor at a global step."""
    present = present_reductions(trial)
    table = trial.rows(name, ["step", *present], steps={step})
    table = table.filter(from_numpy(to_numpy(table["step"]) == step))
    return [each for each in present if table[each].null_count < table.num_rows]


def shown_reduction(trial: Trial, name: str, step: int) -> str | None:
    """What is shown of a tensor where nothing is asked for, by what was saved at a global step.

    Returns:
        None where it has one element at every step whose shape is known; else what
        `best_reduction` gives.
    """
    tensor = trial.tensor(name)
    try:
        # A shape alone is no value.
        if (
            math.prod(tensor.shape(step)) == 1
            and not _ever_larger(trial, name)
            and tensor.values(steps=[step])
        ):
            return None
    except ShapeUnavailableForStep:
        pass
    return best_reduction(trial, name, step)


def _ever_larger(trial: Trial, name: str) -> bool:
    """Whether a shape that was saved is of another number of elements than one."""
    sizes = pc.list_flatten(trial.rows(name, ["step", "shape"])["shape"])
    # One element is what has no size but 1.
    return bool((to_numpy(sizes) != 1).any())


def best_reduction(trial: Trial, name: str, step: int) -> str:
    """The reduction that is shown of a tensor, by what was saved at a global step.

    Returns:
        One of the saved reductions, see `PREFERRED`; else "l2", which can be computed where its
        values were saved.
    """
    saved = saved_reductions(trial, name, step)
    return next((each for each in PREFERRED if each in saved), PREFERRED[0])


def what_was_saved(trial: Trial, name: str) -> str:
    """What there is of a tensor, for a person."""
    steps = trial.tensor(name).steps(show_incomplete_steps=True)
    there = saved_reductions(trial, name, steps[-1]) if steps else []
    return f"saved of it are {', '.join(there)}" if there else "no reductions were saved of it"
