"""The time series of a tensor, read as the run grows."""

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


class _CannotPlot(SMDebugValueError):
    """A tensor whose values cannot be plotted."""


class LiveSeries:
    """The time series of a tensor, read as the run grows.

    Args:
        trial: the run.
        name: the tensor.
        reduction: the name in the index; when None it is chosen by what was saved.
        mode: the numbering of the steps.
        worker: the first worker when None.
        last: how many steps at the end; all when None.
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
        self._started = False
        self._steps, self._values = np.zeros(0, np.int64), np.zeros(0)

    def read(self) -> list[Curve]:
        """Return the curve so far; without a mode, one per mode, over the global steps.

        Raises:
            SMDebugValueError: the tensor cannot be plotted, or was not saved this way.
        """
        tensor = self._trial.tensor(self.name)
        steps = tensor.steps(self._mode)
        if not steps:
            return []
        if not self._started:
            self._start(tensor.steps()[-1])
        wanted = steps if self._last is None else steps[-self._last :]
        try:
            self._read(tensor, wanted)
        except _CannotPlot:
            raise
        except SMDebugValueError:
            if self._reduction is not None:
                raise
            # Not one element at every step: no shape was saved, or it has changed.
            self._restart_reduced(tensor.steps()[-1])
            self._read(tensor, wanted)
        first = 0 if self._last is None else max(len(self._steps) - self._last, 0)
        whole = Curve(
            self.name, self._steps[first:], self._values[first:], self._mode,
            self._reduction, self._saved,
        )  # fmt: skip
        return by_mode(self._trial, whole, self._mode)

    def _read(self, tensor: Tensor, wanted: list[int]) -> None:
        """Read the new steps; each value is read once."""
        new = np.setdiff1d(wanted, self._steps)
        if not len(new):
            return
        # A slice: a worker may not have saved all of them.
        some = slice(int(new[0]), int(new[-1]) + 1)
        try:
            steps, values = tensor.series(self._reduction, self._mode, self._worker, steps=some)
        except InvalidWorker as error:
            raise _CannotPlot(
                f"{self.name} was not saved by {self._worker}, but by {', '.join(error.workers)}"
            ) from error
        except SMDebugTypeError as error:
            raise _CannotPlot(f"{self.name} cannot be shown: {error}") from error
        fresh = np.isin(steps, new)
        self._add(steps[fresh], values[fresh])

    def _start(self, step: int) -> None:
        """Choose the reduction by what was saved at a step."""
        _require_numbers(self._trial, self.name, step)
        if self._reduction is None:
            self._reduction = shown_reduction(self._trial, self.name, step)
        self._require_source(step)
        self._started = True

    def _restart_reduced(self, step: int) -> None:
        """Start again with a reduction, for a tensor of more than one element."""
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
            raise _strings_error(self.name, int(steps[0]))
        if values.dtype.kind == "c":
            raise _CannotPlot(
                f"{self.name} holds complex numbers, which cannot be plotted; "
                "choose a --reduction that is real, such as l2"
            )
        joined = np.concatenate([self._steps, steps])
        order = np.argsort(joined, kind="stable")
        self._steps = joined[order]
        self._values = np.concatenate([self._values, np.asarray(values, np.float64)])[order]


def _require_numbers(trial: Trial, name: str, step: int) -> None:
    table = trial.rows(name, ["step", "dtype"], steps={step})
    kinds = set(table["dtype"].to_pylist())
    if kinds & {"str", "bytes"}:
        raise _strings_error(name, step)


def _strings_error(name: str, step: int) -> SMDebugValueError:
    return _CannotPlot(
        f"{name} holds strings, which cannot be plotted; "
        f"trial.tensor({name!r}).value({step}) reads it"
    )
