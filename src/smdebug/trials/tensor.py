"""One tensor of a trial: its values, reductions and shapes over the steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.exceptions import (
    InvalidWorker,
    ShapeUnavailableForStep,
    SMDebugNotImplementedError,
    SMDebugValueError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailableForStep,
)
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import (
    REDUCTION_NAMES,
    Array,
    canonical_reduction,
    compute_reduction,
)
from smdebug.storage.dtypes import dtype_of
from smdebug.storage.raw import VALUE_COLUMNS, as_dtype, places_of
from smdebug.trials.rows import RowIndex
from smdebug.trials.steps import StepState

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from smdebug.trials.trial import Trial

__all__ = ["StepState", "Tensor"]

_KEY_COLUMNS = ["worker", "step", "mode", "mode_step"]


class Tensor:
    """A tensor that a trial holds; made by `Trial.tensor`.

    Steps are numbers of the given mode. Under `modes.GLOBAL`, the default, they are global steps,
    whatever mode they were saved in.

    Attributes:
        name: the tensor's name.
        trial: the trial it belongs to.

    Example:
        >>> loss = trial.tensor("CrossEntropyLoss_output_0")  # doctest: +SKIP
        >>> steps, values = loss.series(mode=modes.TRAIN)  # doctest: +SKIP
    """

    def __init__(self, name: str, trial: Trial) -> None:
        self.name = name
        self.trial = trial
        self._index: RowIndex | None = None
        self._columns: dict[str, Any] = {}

    @property
    def original_name(self) -> str:
        """The name it had in the framework's graph."""
        return self.trial.original_name(self.name)

    # ---- steps and workers

    def steps(
        self, mode: ModeKeys = ModeKeys.GLOBAL, show_incomplete_steps: bool = False
    ) -> list[int]:
        """The sorted steps at which the tensor was saved, in the numbering of `mode`."""
        self.trial.maybe_refresh()
        reach = None if show_incomplete_steps else self.trial.last_complete_step
        return self._rows().steps(mode, reach)

    def prev_steps(
        self, step: int, n: int | None = None, mode: ModeKeys = ModeKeys.GLOBAL
    ) -> list[int]:
        """The last `n` steps up to and including `step`, ascending."""
        earlier = [known for known in self.steps(mode) if known <= step]
        return earlier if n is None else earlier[max(len(earlier) - n, 0) :]

    def workers(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[str]:
        """The workers that saved the tensor at a step."""
        self.trial.maybe_refresh()
        workers = self._rows().workers_at(step_num, mode)
        if not workers:
            raise TensorUnavailableForStep(self.name, step_num, mode)
        return workers

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Not part of the interface any more."""
        raise SMDebugNotImplementedError(
            "Tensor.step has no meaning; use Tensor.value, Tensor.reduction_value or Tensor.series"
        )

    # ---- raw values

    def value(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> Array:
        """The tensor's value at a step; a read-only view on the stored file when that is local.

        Raises:
            TensorUnavailableForStep: the step was saved without this tensor's value.
            StepUnavailable: the step was not saved.
            StepNotYetAvailable: the step may still come.
            InvalidWorker: this worker did not save it.
            DataCorrupted: the stored bytes are damaged.
        """
        row = self._row(step_num, mode, worker)
        (value,) = self._read_values([row])
        if value is None:
            has_reductions = bool(self._saved_reductions(row))
            raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions)
        return value

    def values(
        self,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        steps: Iterable[int] | None = None,
    ) -> dict[int, Array]:
        """The values of many steps, read together.

        Args:
            mode: the numbering of the steps.
            worker: whose values; the first one's when None.
            steps: which steps; all that were saved when None. Steps without a value are left out.
        """
        self.trial.maybe_refresh()
        found = self._chosen(mode, worker, steps)
        values = self._read_values(list(found.values()))
        return {step: value for step, value in zip(found, values, strict=True) if value is not None}

    # ---- reductions

    def reduction_value(
        self,
        step_num: int,
        reduction_name: str,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        abs: bool = False,
    ) -> np.float64:
        """A reduction at a step: the saved one, else computed from the saved value.

        Raises:
            SMDebugValueError: there is no reduction of this name.
            TensorUnavailableForStep: neither the reduction nor the value was saved.
        """
        name = canonical_reduction(reduction_name, abs)
        row = self._row(step_num, mode, worker)
        saved = self._column(name)[row]
        if saved is not None:
            found: np.float64 = np.float64(saved)
            return found
        (value,) = self._read_values([row])
        if value is None:
            has_reductions = bool(self._saved_reductions(row))
            raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions)
        return compute_reduction(value, name)

    def reduction_values(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], np.float64]:
        """The reductions saved at a step, as (name, abs) to value."""
        row = self._row(step_num, mode, worker)
        return {
            (name.removeprefix("abs_"), name.startswith("abs_")): np.float64(value)
            for name, value in self._saved_reductions(row).items()
        }

    def series(
        self,
        reduction: str | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        abs: bool = False,
    ) -> tuple[Array, Array]:
        """The course of a reduction, or of a scalar, in one pass.

        Args:
            reduction: such as "l2" or "abs_mean". Where it was not saved it is computed from the
                value, if that was. None gives the value itself of a one-element tensor.
            mode: the numbering of the steps.
            worker: whose; the first one's when None.
            abs: reduce the absolute values.

        Returns:
            Two arrays of equal length: steps and values. Steps without either are left out.

        Example:
            >>> steps, norms = trial.tensor("gradient/fc.weight").series("l2")  # doctest: +SKIP
        """
        self.trial.maybe_refresh()
        found = self._chosen(mode, worker, None)
        steps, rows = np.array(list(found), np.int64), list(found.values())
        if reduction is None:
            return self._scalar_series(steps, rows)
        name = canonical_reduction(reduction, abs)
        column = self._column(name)
        values = [column[row] for row in rows]
        missing = [place for place, value in enumerate(values) if value is None]
        raw = self._read_values([rows[place] for place in missing])
        for place, value in zip(missing, raw, strict=True):
            values[place] = None if value is None else float(compute_reduction(value, name))
        return _present(steps, values, np.dtype(np.float64))

    def _scalar_series(self, steps: Array, rows: list[int]) -> tuple[Array, Array]:
        values = self._read_values(rows)
        kinds = {value.dtype for value in values if value is not None}
        for step, value in zip(steps, values, strict=True):
            if value is not None and value.size != 1:
                raise SMDebugValueError(
                    f"tensor {self.name} has shape {value.shape} at step {step}, so its course is "
                    "not a series of numbers; name a reduction, such as series('mean')"
                )
        kind = np.result_type(*kinds) if kinds else np.dtype(np.float64)
        return _present(steps, [None if v is None else v.reshape(-1)[0] for v in values], kind)

    # ---- shapes

    def shape(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> tuple[int, ...]:
        """The tensor's shape at a step.

        Raises:
            ShapeUnavailableForStep: neither the shape nor the value was saved.
        """
        row = self._row(step_num, mode, worker)
        shape = self._shape_of(row)
        if shape is None:
            raise ShapeUnavailableForStep(self.name, step_num, mode)
        return shape

    def shapes(
        self, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[int, tuple[int, ...]]:
        """The shapes at all steps where they are known."""
        self.trial.maybe_refresh()
        found = self._chosen(mode, worker, None)
        shapes = {step: self._shape_of(row) for step, row in found.items()}
        return {step: shape for step, shape in shapes.items() if shape is not None}

    def _shape_of(self, row: int) -> tuple[int, ...] | None:
        saved = self._column("shape")[row]
        if saved is not None:
            return tuple(saved)
        (value,) = self._read_values([row])
        return None if value is None else value.shape

    # ---- rows

    def _rows(self) -> RowIndex:
        """The rows of the tensor, read again when the trial has found something new."""
        version = self.trial.version
        if self._index is None or self._index.version != version:
            table = self.trial.rows(self.name, _KEY_COLUMNS)
            self._index = RowIndex(table, version)
            self._columns = {}
        return self._index

    def _column(self, name: str) -> Any:
        self._rows()
        if name not in self._columns:
            self._columns[name] = self.trial.rows(self.name, [name])[name].to_pylist()
        return self._columns[name]

    def _saved_reductions(self, row: int) -> dict[str, float]:
        rows = self._rows()
        step = {int(rows.step[row])}
        table = self.trial.rows(self.name, [*_KEY_COLUMNS, *REDUCTION_NAMES], steps=step)
        place = RowIndex(table, 0).row(
            int(rows.step[row]), ModeKeys.GLOBAL, rows.workers[rows.worker[row]]
        )
        found = {} if place is None else table.slice(place, 1).to_pylist()[0]
        return {name: found[name] for name in REDUCTION_NAMES if found.get(name) is not None}

    def _row(self, step_num: int, mode: ModeKeys, worker: str | None) -> int:
        self.trial.maybe_refresh()
        rows = self._rows()
        row = rows.row(step_num, mode, worker)
        if row is not None:
            return row
        if worker is not None and worker not in self.trial.workers():
            raise InvalidWorker(worker, tuple(self.trial.workers()))
        if worker is not None and rows.workers_at(step_num, mode):
            raise InvalidWorker(worker, tuple(rows.workers_at(step_num, mode)))
        state = self.trial.has_passed_step(step_num, mode)
        if state is StepState.AVAILABLE:
            raise TensorUnavailableForStep(self.name, step_num, mode)
        if state is StepState.UNAVAILABLE:
            raise StepUnavailable(step_num, mode)
        raise StepNotYetAvailable(step_num, mode)

    def _chosen(
        self, mode: ModeKeys, worker: str | None, steps: Iterable[int] | None
    ) -> dict[int, int]:
        """Rows by step."""
        rows = self._rows()
        if worker is not None and worker not in rows.workers:
            raise InvalidWorker(worker, tuple(rows.workers))
        if steps is None:
            return rows.by_step(mode, worker)
        return {step: self._row(step, mode, worker) for step in steps}

    def _read_values(self, rows: list[int]) -> list[Array | None]:
        if not rows:
            return []
        table = self._value_table().take(rows)
        places = places_of(table, self.name)
        raw = iter(self.trial.read_values([place for place in places if place is not None]))
        columns = [table[name].to_pylist() for name in ("value", "dtype", "shape")]
        values: list[Array | None] = []
        for place, value, dtype, shape in zip(places, *columns, strict=True):
            if place is not None:
                values.append(as_dtype(next(raw), dtype))
            else:
                values.append(_from_index(value, dtype, shape))
        return values

    def _value_table(self) -> pa.Table:
        self._rows()
        if "" not in self._columns:
            self._columns[""] = self.trial.rows(self.name, VALUE_COLUMNS)
        return self._columns[""]

    def __repr__(self) -> str:
        return f"<Tensor {self.name!r} of trial {self.trial.name!r}>"


def _from_index(value: float | None, dtype: str | None, shape: list[int] | None) -> Array | None:
    """The value of a row without a record: a scalar, or an empty tensor; else None."""
    if shape is None or dtype is None or dtype in ("str", "bytes"):
        return None
    if value is not None:
        with np.errstate(all="ignore"):
            array = np.full(shape, value, np.float64).astype(dtype_of(dtype))
    elif math.prod(shape) == 0:
        array = np.zeros(shape, dtype_of(dtype))
    else:
        return None
    array.flags.writeable = False
    return array


def _present(steps: Array, values: list[Any], kind: np.dtype[Any]) -> tuple[Array, Array]:
    kept = [place for place, value in enumerate(values) if value is not None]
    return steps[kept], np.array([values[place] for place in kept], kind)
