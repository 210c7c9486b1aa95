"""The course of a tensor that a command line names, read as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.trials.curves import Curve, by_mode, saved_reductions, shown_reduction

if TYPE_CHECKING:
    from smdebug.reductions import Array
    from smdebug.trials.trial import Trial


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

    def look(self) -> list[Curve]:
        """What there is by now; without a mode, a curve for each, over the global steps.

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
        whole = Curve(
            self.name, self._steps[first:], self._values[first:], self._mode,
            self._reduction, self._saved,
        )  # fmt: skip
        return by_mode(self._trial, whole, self._mode)

    def _begin(self, step: int) -> None:
        """Decides what is shown, by what was saved at a step."""
        _require_numbers(self._trial, self.name, step)
        if self._reduction is None:
            self._reduction = shown_reduction(self._trial, self.name, step)
        present = saved_reductions(self._trial, self.name, step)
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
