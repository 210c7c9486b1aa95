"""The course of a tensor that a command line names, read as it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smdebug.exceptions import InvalidWorker, SMDebugTypeError, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.trials.curves import (
    Curve,
    best_reduction,
    by_mode,
    saved_reductions,
    shown_reduction,
)

if TYPE_CHECKING:
    from smdebug.reductions import Array
    from smdebug.trials.tensor import Tensor
    from smdebug.trials.trial import Trial


class _Unfit(SMDebugValueError):
    """No number of a tensor is what was asked for."""


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
        try:
            self._read(tensor, wanted)
        except _Unfit:
            raise
        except SMDebugValueError:
            if self._reduction is not None:
                raise
            # Not one element everywhere: where no shape says so, or since now.
            self._begin_larger(tensor.steps()[-1])
            self._read(tensor, wanted)
        first = 0 if self._last is None else max(len(self._steps) - self._last, 0)
        whole = Curve(
            self.name, self._steps[first:], self._values[first:], self._mode,
            self._reduction, self._saved,
        )  # fmt: skip
        return by_mode(self._trial, whole, self._mode)

    def _read(self, tensor: Tensor, wanted: list[int]) -> None:
        """Reads what is new; values are read once, however often somebody looks."""
        new = np.setdiff1d(wanted, self._steps)
        if not len(new):
            return
        # A slice: a worker may not have saved all of them.
        some = slice(int(new[0]), int(new[-1]) + 1)
        try:
            steps, values = tensor.series(self._reduction, self._mode, self._worker, steps=some)
        except InvalidWorker as error:
            raise _Unfit(
                f"{self.name} was not saved by {self._worker}, but by {', '.join(error.workers)}"
            ) from error
        except SMDebugTypeError as error:
            raise _Unfit(f"{self.name} cannot be shown: {error}") from error
        fresh = np.isin(steps, new)
        self._add(steps[fresh], values[fresh])

    def _begin(self, step: int) -> None:
        """Decides what is shown, by what was saved; a step says which reductions were."""
        _require_numbers(self._trial, self.name, step)
        if self._reduction is None:
            self._reduction = shown_reduction(self._trial, self.name, step)
        self._require_source(step)
        self._begun = True

    def _begin_larger(self, step: int) -> None:
        """Begins again, with a reduction of more than one element."""
        self._reduction = best_reduction(self._trial, self.name, step)
        self._require_source(step)
        self._steps, self._values = np.zeros(0, np.int64), np.zeros(0)

    def _require_source(self, step: int) -> None:
        present = saved_reductions(self._trial, self.name, step)
        self._saved = self._reduction is None or self._reduction in present
        if not self._saved and not self._trial.tensor(self.name).values(steps=[step]):
            remedy = ": choose one of them with --reduction" if present else ""
            raise SMDebugValueError(
                f"{self.name} was saved without {self._reduction}, and without the values to "
                f"compute it from; reductions that were saved: {', '.join(present) or 'none'}"
                f"{remedy}"
            )

    def _add(self, steps: Array, values: Array) -> None:
        if values.dtype.kind in "USO":
            raise _text(self.name, int(steps[0]))
        if values.dtype.kind == "c":
            raise _Unfit(
                f"{self.name} holds complex numbers, which are no course; "
                "name a --reduction that is real, such as l2"
            )
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
    return _Unfit(
        f"expected a tensor of numbers, got {name}, which holds text; "
        f"trial.tensor({name!r}).value({step}) reads it"
    )
