"""One tensor of a trial: its values, reductions and shapes over the steps.

More than 400 lines because it is the interface of smdebug 1.0, with a docstring for each method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.exceptions import (
    InvalidWorker,
    ShapeUnavailableForStep,
    SMDebugNotImplementedError,
    SMDebugValueError,
    TensorUnavailableForStep,
)
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import (
    REDUCTION_NAMES,
    Array,
    canonical_reduction,
    compute_reduction,
)
from smdebug.storage.arrow import from_numpy, pc, to_numpy
from smdebug.storage.format.dtypes import dtype_of
from smdebug.storage.raw_tensors import VALUE_COLUMNS
from smdebug.trials.frame_reader import FrameQuery
from smdebug.trials.index_rows import VALUE
from smdebug.trials.rows import RowIndex
from smdebug.trials.steps import StepState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from smdebug.trials.frame import Frame
    from smdebug.trials.trial import Trial

__all__ = ["StepState", "Tensor"]

# From here on all rows of a tensor are read at once.
_FEW = 3
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
        self._snapshots: dict[tuple[str, ...], RowIndex] = {}
        # How often single steps were asked for since the trial last found something new.
        self._asked = (-1, 0)

    @property
    def original_name(self) -> str:
        """The name it had in the framework's graph."""
        return self.trial.original_name(self.name)

    # ---- steps and workers

    def steps(
        self, mode: ModeKeys = ModeKeys.GLOBAL, show_incomplete_steps: bool = False
    ) -> list[int]:
        """The sorted steps at which the tensor was saved, in the numbering of `mode`."""
        rows = self._rows()
        reach = None if show_incomplete_steps else self.trial.last_complete_step
        return list(rows.by_step(mode, None, reach))

    def prev_steps(
        self, step: int, n: int | None = None, mode: ModeKeys = ModeKeys.GLOBAL
    ) -> list[int]:
        """The last `n` steps up to and including `step`, ascending."""
        earlier = [known for known in self.steps(mode) if known <= step]
        return earlier if n is None else earlier[max(len(earlier) - n, 0) :]

    def workers(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[str]:
        """The workers that saved the tensor at a step."""
        workers = self._rows_at(step_num, mode, []).workers_at(step_num, mode)
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
        rows = self._rows_at(step_num, mode, VALUE_COLUMNS)
        row = self._row(rows, step_num, mode, worker)
        (value,) = self._read_values(rows, [row])
        if value is None:
            raise self._not_raw(rows, row, step_num, mode)
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
        rows = self._rows(VALUE_COLUMNS)
        found = self._chosen(rows, mode, worker, steps)
        values = self._read_values(rows, list(found.values()))
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
        rows = self._rows_at(step_num, mode, (name,))
        saved = rows.column(name)[self._row(rows, step_num, mode, worker)]
        if saved is not None:
            found: np.float64 = np.float64(saved)
            return found
        rows = self._rows_at(step_num, mode, VALUE_COLUMNS, refresh=False)
        row = self._row(rows, step_num, mode, worker)
        (value,) = self._read_values(rows, [row])
        if value is None:
            raise self._not_raw(rows, row, step_num, mode)
        return compute_reduction(value, name)

    def reduction_values(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], np.float64]:
        """The reductions saved at a step, as (name, abs) to value."""
        rows = self._rows_at(step_num, mode, [])
        row = self._row(rows, step_num, mode, worker)
        return {
            (name.removeprefix("abs_"), name.startswith("abs_")): np.float64(value)
            for name, value in self._saved_reductions(rows, row).items()
        }

    def series(
        self,
        reduction: str | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        abs: bool = False,
        steps: Iterable[int] | slice | None = None,
    ) -> tuple[Array, Array]:
        """Return a reduction, or the element of a one-element tensor, over the steps.

        Args:
            reduction: such as "l2" or "abs_mean". Where it was not saved it is computed from the
                value, if that was. None returns the value of a one-element tensor.
            mode: the numbering of the steps.
            worker: of which worker; the first that has a step when None.
            abs: reduce the absolute values.
            steps: a list of steps, or a slice; all that were saved when None.

        Returns:
            Two arrays of equal length: steps and values. Steps without either are skipped.

        Raises:
            StepUnavailable: one of `steps` was not saved.
            TensorUnavailableForStep: it was saved without this tensor.

        Example:
            >>> steps, norms = trial.tensor("gradient/fc.weight").series("l2")  # doctest: +SKIP
        """
        self.trial.maybe_refresh()
        self._require_worker(worker)
        name = VALUE if reduction is None else canonical_reduction(reduction, abs)
        chosen = steps if steps is None or isinstance(steps, slice) else tuple(steps)
        frame = FrameQuery(
            self.trial, [self.name], (name,), mode, worker, chosen, strict=reduction is not None
        ).read()
        if reduction is None:
            return self._scalar_series(frame)
        frame = frame.known()
        return frame.steps, frame.values.reshape(-1)

    def _scalar_series(self, frame: Frame) -> tuple[Array, Array]:
        """Return the elements of a one-element tensor in their own type."""
        rows = frame.cells[:, 0] if frame.columns else np.zeros(0, np.int64)
        table = frame.rows.table.take(from_numpy(rows))
        names = set(pc.unique(table["dtype"]).to_pylist())
        if len(names) == 1 and not table["value"].null_count:
            # All of them are in the index: one column, one conversion.
            with np.errstate(all="ignore"):
                return frame.steps, to_numpy(table["value"]).astype(dtype_of(names.pop()))
        raw = self.trial.row_values(table, self.name) if len(rows) else []
        values = {s: v for s, v in zip(frame.steps.tolist(), raw, strict=True) if v is not None}
        for step, value in values.items():
            if value.size != 1:
                raise SMDebugValueError(
                    f"Tensor {self.name} has shape {value.shape} at step {step}, not one element. "
                    "Name a reduction, such as series('mean')."
                )
        kinds = {value.dtype for value in values.values()}
        kind = np.result_type(*kinds) if kinds else np.dtype(np.float64)
        numbers = [value.reshape(-1)[0] for value in values.values()]
        return np.array(list(values), np.int64), np.array(numbers, kind)

    def _require_worker(self, worker: str | None) -> None:
        if worker is not None:
            known = self._rows().workers
            if worker not in known:
                raise InvalidWorker(worker, tuple(known))

    def plot(
        self,
        reduction: str | None = None,
        *,
        step: int | Iterable[int] | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        ax: Any = None,
    ) -> Any:
        """Plots a reduction over the steps, or the histogram at a step; see `Trial.plot`.

        Example:
            >>> trial.tensor("gradient/fc.weight").plot("l2")  # doctest: +SKIP
        """
        from smdebug.trials.plot.trial_plot import PlotOptions, plot_names

        how = PlotOptions(reduction, step, "lines", mode, worker, ax)
        return plot_names(self.trial, [self.name], how)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from smdebug.trials.notebook.html import tensor_html

        return tensor_html(self)

    # ---- shapes

    def shape(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> tuple[int, ...]:
        """The tensor's shape at a step.

        Raises:
            ShapeUnavailableForStep: neither the shape nor the value was saved.
        """
        rows = self._rows_at(step_num, mode, VALUE_COLUMNS)
        shape = self._shape_of(rows, self._row(rows, step_num, mode, worker))
        if shape is None:
            raise ShapeUnavailableForStep(self.name, step_num, mode)
        return shape

    def shapes(
        self, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[int, tuple[int, ...]]:
        """The shapes at all steps where they are known."""
        rows = self._rows(VALUE_COLUMNS)
        found = self._chosen(rows, mode, worker, None)
        shapes = {step: self._shape_of(rows, row) for step, row in found.items()}
        return {step: shape for step, shape in shapes.items() if shape is not None}

    def _shape_of(self, rows: RowIndex, row: int) -> tuple[int, ...] | None:
        saved = rows.column("shape")[row]
        if saved is not None:
            return tuple(saved)
        (value,) = self._read_values(rows, [row])
        return None if value is None else value.shape

    # ---- rows

    def _rows(self, columns: Sequence[str] = (), refresh: bool = True) -> RowIndex:
        """The rows of the tensor with these columns, as of now.

        Everything one question needs comes from one such snapshot: a refresh in between would
        move the rows.
        """
        if refresh:
            self.trial.maybe_refresh()
        key = tuple(columns)
        known = self._snapshots.get(key)
        if known is None or known.version != self.trial.version:
            needed = list(dict.fromkeys([*_KEY_COLUMNS, *columns]))
            table = self.trial.rows(self.name, needed)
            version = self.trial.version
            self._snapshots = {
                key: rows for key, rows in self._snapshots.items() if rows.version == version
            }
            known = self._snapshots[key] = RowIndex(table, version)
        return known

    def _rows_at(
        self, step_num: int, mode: ModeKeys, columns: Sequence[str], refresh: bool = True
    ) -> RowIndex:
        """The rows of one step, as of now; others may be there.

        Whoever follows a job asks for the newest step, and the rows of all steps would be read
        for it again and again. Whoever asks for several steps is better served with all rows.
        """
        if refresh:
            self.trial.maybe_refresh()
        known = self._snapshots.get(tuple(columns))
        if known is not None and known.version == self.trial.version:
            return known
        asked = self._asked[1] if self._asked[0] == self.trial.version else 0
        global_step = self.trial.known_global_step(mode, step_num)
        if self.trial.loaded_all_steps or asked >= _FEW or global_step is None:
            return self._rows(columns, refresh=False)
        self._asked = (self.trial.version, asked + 1)
        needed = list(dict.fromkeys([*_KEY_COLUMNS, *columns]))
        return RowIndex(self.trial.rows(self.name, needed, steps={global_step}), -1)

    def _saved_reductions(self, rows: RowIndex, row: int) -> dict[str, float]:
        step, worker = int(rows.step[row]), rows.workers[rows.worker[row]]
        table = self.trial.rows(self.name, [*_KEY_COLUMNS, *REDUCTION_NAMES], steps={step})
        place = RowIndex(table, rows.version).row(step, ModeKeys.GLOBAL, worker)
        found = {} if place is None else table.slice(place, 1).to_pylist()[0]
        return {name: found[name] for name in REDUCTION_NAMES if found.get(name) is not None}

    def _not_raw(self, rows: RowIndex, row: int, step_num: int, mode: ModeKeys) -> Exception:
        has_reductions = bool(self._saved_reductions(rows, row))
        return TensorUnavailableForStep(self.name, step_num, mode, has_reductions)

    def _row(self, rows: RowIndex, step_num: int, mode: ModeKeys, worker: str | None) -> int:
        row = rows.row(step_num, mode, worker)
        if row is not None:
            return row
        known = self.trial.known_workers()
        if worker is not None and worker not in known:
            raise InvalidWorker(worker, tuple(known))
        self.trial.require_step(step_num, mode)
        if worker is not None and rows.workers_at(step_num, mode):
            raise InvalidWorker(worker, tuple(rows.workers_at(step_num, mode)))
        raise TensorUnavailableForStep(self.name, step_num, mode)

    def _chosen(
        self, rows: RowIndex, mode: ModeKeys, worker: str | None, steps: Iterable[int] | None
    ) -> dict[int, int]:
        """Rows by step: the given steps, or all that are complete."""
        if worker is not None and worker not in rows.workers:
            raise InvalidWorker(worker, tuple(rows.workers))
        if steps is not None:
            return {step: self._row(rows, step, mode, worker) for step in steps}
        reach = self.trial.last_complete_step if worker is None else None
        return rows.by_step(mode, worker, reach)

    def _read_values(self, rows: RowIndex, chosen: list[int]) -> list[Array | None]:
        if not chosen:
            return []
        return self.trial.row_values(rows.table.take(from_numpy(np.array(chosen))), self.name)

    def __repr__(self) -> str:
        return f"<Tensor {self.name!r} of trial {self.trial.name!r}>"
