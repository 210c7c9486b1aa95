"""The courses of tensors that a command line names, as numbers over steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from smdebug.exceptions import ShapeUnavailableForStep, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import REDUCTION_NAMES, Array

if TYPE_CHECKING:
    from smdebug.trials.trial import Trial

# Of the reductions that were saved, the first of these is shown.
_PREFERRED = ("l2", "abs_l2", "mean", "abs_mean", *REDUCTION_NAMES)


@dataclass(frozen=True)
class Series:
    """The course of one tensor in one mode.

    Attributes:
        tensor: its name.
        reduction: which reduction of it; None when it is the value itself.
        saved: whether the reduction was saved; else it is computed from the values.
        mode: the mode of the steps; GLOBAL when they are of no mode.
        steps: in the numbering that was asked for.
        values: as many.
    """

    tensor: str
    reduction: str | None
    saved: bool
    mode: ModeKeys
    steps: Array
    values: Array


class Course:
    """The course of a tensor, read as it grows.

    Args:
        trial: the run.
        name: the tensor.
        reduction: as the index spells it; chosen by what was saved when None.
        mode: the numbering of the steps.
        worker: whose; the first one's when None.
        last: so many steps at the end; all when None.
    """

    def __init__(
        self,
        trial: Trial,
        name: str,
        reduction: str | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        last: int | None = None,
    ) -> None:
        self.name = name
        self._trial, self._reduction, self._mode = trial, reduction, mode
        self._worker, self._last = worker, last
        self._saved = True
        self._begun = False
        self._steps, self._values = np.zeros(0, np.int64), np.zeros(0)

    def look(self) -> list[Series]:
        """What there is by now; without a mode, a series for each, over the global steps.

        Raises:
            SMDebugValueError: it has no course, or not this one.
        """
        tensor = self._trial.tensor(self.name)
        steps = tensor.steps(self._mode)
        if not steps:
            return []
        if not self._begun:
            self._begin(tensor.steps()[-1])
        wanted = steps if self._last is None else steps[-self._last :]
        known = set(self._steps.tolist())
        # Values are read once, however often somebody looks.
        new = [step for step in wanted if step not in known]
        self._add(*tensor.series(self._reduction, self._mode, self._worker, steps=new))
        first = 0 if self._last is None else max(len(self._steps) - self._last, 0)
        return self._split(self._steps[first:], self._values[first:])

    def _begin(self, step: int) -> None:
        """Decides what is shown, by what was saved at a step."""
        _require_numbers(self._trial, self.name, step)
        present = _saved_reductions(self._trial, self.name, step)
        if self._reduction is None:
            self._reduction = _choice(self._trial, self.name, step, present)
        self._saved = self._reduction is None or self._reduction in present
        if not self._saved and not self._trial.tensor(self.name).values(steps=[step]):
            remedy = ": choose one of them with --reduction" if present else ""
            raise SMDebugValueError(
                f"{self.name} was saved without {self._reduction}, and without the values to "
                f"compute it from; reductions that were saved: {', '.join(present) or 'none'}"
                f"{remedy}"
            )
        self._begun = True

    def _add(self, steps: Array, values: Array) -> None:
        if values.dtype.kind in "USO":
            raise _text(self.name, int(steps[0]))
        joined = np.concatenate([self._steps, steps])
        order = np.argsort(joined, kind="stable")
        self._steps = joined[order]
        self._values = np.concatenate([self._values, np.asarray(values, np.float64)])[order]

    def _split(self, steps: Array, values: Array) -> list[Series]:
        whole = (self.name, self._reduction, self._saved)
        if self._mode is not ModeKeys.GLOBAL:
            return [Series(*whole, self._mode, steps, values)]
        return [
            Series(*whole, mode, steps[hits], values[hits])
            for mode, hits in _by_mode(self._trial, self.name, steps)
        ]


def _by_mode(trial: Trial, name: str, steps: Array) -> list[tuple[ModeKeys, Array]]:
    """The modes of steps, in the order they begin; for each, which steps are its own."""
    table = trial.rows(name, ["step", "mode"])
    all_steps = table["step"].to_numpy()
    names = np.array(table["mode"].to_pylist(), object)
    found = [
        (ModeKeys[each], np.isin(steps, all_steps[names == each])) for each in dict.fromkeys(names)
    ]
    kept = [pair for pair in found if pair[1].any()]
    return sorted(kept, key=lambda pair: int(np.flatnonzero(pair[1])[0]))


def present_reductions(trial: Trial) -> list[str]:
    """The reductions that were saved of any tensor."""
    return [each for each in trial.present_columns() if each in REDUCTION_NAMES]


def _saved_reductions(trial: Trial, name: str, step: int) -> list[str]:
    """The reductions that were saved of a tensor at a step."""
    present = present_reductions(trial)
    table = trial.rows(name, ["step", *present], steps={step})
    table = table.filter(table["step"].to_numpy() == step)
    return [each for each in present if table[each].null_count < table.num_rows]


def _choice(trial: Trial, name: str, step: int, present: list[str]) -> str | None:
    """What of a tensor is shown: its only element, else a reduction."""
    saved = next((each for each in _PREFERRED if each in present), None)
    try:
        shape = trial.tensor(name).shape(step)
        # A shape alone is no value.
        return None if math.prod(shape) == 1 and trial.tensor(name).values(steps=[step]) else (
            saved or "l2"
        )  # fmt: skip
    except ShapeUnavailableForStep:
        return saved or "l2"


def _require_numbers(trial: Trial, name: str, step: int) -> None:
    table = trial.rows(name, ["step", "dtype"], steps={step})
    kinds = set(table["dtype"].to_pylist())
    if kinds & {"str", "bytes"}:
        raise _text(name, step)


def _text(name: str, step: int) -> SMDebugValueError:
    return SMDebugValueError(
        f"expected a tensor of numbers, got {name}, which holds text; "
        f"trial.tensor({name!r}).value({step}) reads it"
    )
