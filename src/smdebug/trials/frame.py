"""Numbers of many tensors over many steps, as one array: what everything that reads a run reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.config.validation import short_repr
from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.arrow import from_numpy, pa, to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from smdebug.reductions import Array
    from smdebug.trials.index_rows import Bools, Floats, IndexRows, Ints
    from smdebug.trials.trial import Trial


class Column(NamedTuple):
    """One tensor; the worker is empty where workers share a column."""

    tensor: str
    worker: str = ""


class RawValue(NamedTuple):
    """The raw value of a tensor at a step."""

    step: int
    column: Column
    array: Array


@dataclass(frozen=True, eq=False)
class Frame:
    """A reduction of several tensors over several steps; made by `Trial.frame`.

    Attributes:
        steps: the steps, ascending, in the numbering of `mode`.
        columns: the tensors.
        reductions: the reductions that were read; `values` are those of the first. "value" is the
            element of one-element tensors.
        mode: the mode of the steps; GLOBAL for all, by their global number.
        rows: the rows of the index that it was made of.
        cells: for each step and column the row in `rows`, -1 where the tensor was not saved.

    Example:
        >>> frame = trial.frame("gradient/*", reduction="l2")  # doctest: +SKIP
        >>> frame.values[-1]  # doctest: +SKIP
        >>> frame.to_pandas().plot()  # doctest: +SKIP
    """

    steps: Ints
    columns: list[Column]
    reductions: tuple[str, ...]
    mode: ModeKeys
    rows: IndexRows
    cells: Ints

    @property
    def trial(self) -> Trial:
        """The trial that it was read from."""
        return self.rows.trial

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def shape(self) -> tuple[int, int]:
        """How many steps and columns there are."""
        return len(self.steps), len(self.columns)

    @property
    def reduction(self) -> str:
        """The reduction that `values` are of."""
        return self.reductions[0]

    @property
    def tensors(self) -> list[str]:
        """The tensor of each column."""
        return [column.tensor for column in self.columns]

    # ---- numbers

    @property
    def values(self) -> Floats:
        """The reduction: a row per step, a column per tensor; NaN where there is none."""
        return self._numbers[0]

    @property
    def present(self) -> Bools:
        """Where the reduction is known; it may itself be NaN."""
        return self._numbers[1]

    @cached_property
    def _numbers(self) -> tuple[Floats, Bools]:
        return self.read(self.reduction)

    def read(self, reduction: str, where: Bools | None = None) -> tuple[Floats, Bools]:
        """Return another of the reductions for the same cells, and where it is known.

        Args:
            reduction: one of `reductions`.
            where: the cells to read; others are not computed from raw values either.
        """
        if reduction not in self.reductions:
            raise SMDebugValueError(
                f"Unknown reduction {short_repr(reduction)} of a frame. It was read with "
                f"{', '.join(self.reductions)}."
            )
        wanted = self.saved if where is None else self.saved & where
        values, present = np.full(self.shape, np.nan), np.zeros(self.shape, bool)
        found, known = self.rows.reduction(reduction, self.cells[wanted])
        values[wanted] = np.where(known, found, np.nan)
        present[wanted] = known
        return values, present

    def __getitem__(self, reduction: str) -> Frame:
        """Return the frame of another of its reductions."""
        if reduction not in self.reductions:
            self.read(reduction)
        others = [name for name in self.reductions if name != reduction]
        return replace(self, reductions=(reduction, *others))

    # ---- cells

    @cached_property
    def saved(self) -> Bools:
        """Where the tensor was saved, whatever was saved of it."""
        return self.cells >= 0

    def cell_values(self, by_row: Array, missing: Any) -> Array:
        """Lay out something that is known for every row of the index."""
        padded = np.append(by_row, missing) if len(by_row) == 0 else by_row
        found: Array = np.where(self.saved, padded[self.cells], missing)
        return found

    def sizes(self, unknown: int = 0) -> Ints:
        """Return the number of elements of each tensor; `unknown` where that is not known."""
        return self.cell_values(self.rows.sizes(unknown), unknown)

    @property
    def positions(self) -> Ints:
        """The position of each tensor within its step, in execution order."""
        by_row = to_numpy(self.rows.table["position"]).astype(np.int64)
        found: Ints = self.cell_values(by_row, np.iinfo(np.int64).max)
        return found

    @property
    def has_value(self) -> Bools:
        """Where the raw value was saved."""
        return self.cell_values(self.rows.has_value(), False)

    @cached_property
    def _first_rows(self) -> Ints:
        """A row of each step."""
        rows: Ints = np.max(self.cells, axis=1, initial=-1)
        return rows

    @property
    def modes(self) -> list[ModeKeys]:
        """The mode of each step."""
        return [ModeKeys(number) for number in self._mode_numbers.tolist()]

    # Cached: rules ask for the mode of one step after the other.
    @cached_property
    def mode_steps(self) -> Ints:
        """The step within its mode, for each step."""
        return self.rows.mode_of_step[1][self._first_rows]

    @cached_property
    def _mode_numbers(self) -> Ints:
        return self.rows.mode_of_step[0][self._first_rows]

    def mode_at(self, step: int) -> tuple[ModeKeys, int]:
        """Return the mode of one of its steps, and the step within it."""
        place = int(np.searchsorted(self.steps, step))
        return ModeKeys(int(self._mode_numbers[place])), int(self.mode_steps[place])

    @property
    def times(self) -> Floats:
        """When each step began, in seconds since 1970; read only where rules do."""
        found: Floats = np.min(self.cell_values(self.rows.time, np.inf), axis=1, initial=np.inf)
        return found

    @property
    def global_steps(self) -> Ints:
        """The global step of each step."""
        return self.rows.step[self._first_rows]

    def raw_values(self) -> Iterator[RawValue]:
        """Yield the raw values that were saved, by step and in execution order."""
        step, column = np.nonzero(self.has_value)
        order = np.lexsort((self.positions[step, column], step))
        step, column = step[order], column[order]
        rows = self.cells[step, column]
        places = {int(row): number for number, row in enumerate(rows.tolist())}
        for row, array in self.rows.raw_values(rows):
            number = places[row]
            yield RawValue(int(self.steps[step[number]]), self.columns[int(column[number])], array)

    # ---- parts of it

    def select(
        self, choose: Callable[[str], bool] | None = None, mode: ModeKeys = ModeKeys.GLOBAL
    ) -> Frame:
        """Return the part with some of the tensors and steps; empty steps and columns go.

        Args:
            choose: whether a tensor of this name is wanted; None for all.
            mode: only steps of this mode.
        """
        columns = np.array([choose is None or choose(each.tensor) for each in self.columns], bool)
        steps = np.ones(len(self), bool)
        if mode is not ModeKeys.GLOBAL:
            steps = self._mode_numbers == mode.value
        part = self if columns.all() and steps.all() else self.at(steps, columns)
        return part._trimmed(part.saved)

    def where_saved(
        self, choose: Callable[[str], bool] | None = None, mode: ModeKeys = ModeKeys.GLOBAL
    ) -> Frame:
        """Return a part as `select` does, without numbers: `present` is where tensors were saved.

        Several reductions of it are read with `read`.
        """
        part = self.select(choose, mode)
        return part.with_values(np.full(part.shape, np.nan), part.saved)

    def with_values(
        self, values: Floats, present: Bools, columns: list[Column] | None = None
    ) -> Frame:
        """Return a frame of the same steps with other numbers, such as ones computed from these.

        Args:
            values: the numbers.
            present: where there is one.
            columns: what they are of; the same columns when None.
        """
        if columns is None:
            frame = replace(self)
        else:
            # Of other columns there are no rows; one of the step tells its mode.
            cells = np.where(present, self._first_rows[:, None], -1)
            frame = replace(self, columns=columns, cells=cells)
        frame.__dict__["_numbers"] = (values, present)
        return frame

    def at(self, rows: Bools | Ints, columns: Bools | Ints | None = None) -> Frame:
        """Return some of the steps, and of the columns, by masks or by their indices."""
        places = np.arange(len(self.columns)) if columns is None else columns
        if places.dtype == bool:
            places = np.flatnonzero(places)
        part = np.ix_(rows, places)
        kept = [self.columns[place] for place in places.tolist()]
        frame = replace(self, steps=self.steps[rows], columns=kept, cells=self.cells[part])
        if "_numbers" in self.__dict__:
            frame.__dict__["_numbers"] = (self.values[part], self.present[part])
        return frame

    def known(self) -> Frame:
        """Return the part without the steps and columns that have no number."""
        return self._trimmed(self.present)

    def _trimmed(self, filled: Bools) -> Frame:
        rows: Bools = np.any(filled, axis=1)
        columns: Bools = np.any(filled, axis=0)
        if rows.all() and columns.all():
            return self
        return self.at(rows, columns)

    def every(self, n: int) -> Frame:
        """Return every n-th step."""
        return self.at(np.arange(0, len(self), n))

    def decimate(self, max_points: int) -> Frame:
        """Return at most `max_points` steps that keep extremes and non-finite values.

        Consecutive steps share a bucket, of which each column keeps its minimum, its maximum and,
        where there is one, a value that is not finite. With several columns these are not of the
        same steps: the steps of the result are the first ones of each bucket.
        """
        if len(self) <= max_points:
            return self
        size = -(-len(self) // max(max_points // 3, 1))
        # The steps of a last bucket of one or two stay as they are.
        rest = len(self) % size if len(self) % size < 3 else 0
        whole = len(self) - rest
        found, known = _buckets(self.values[:whole], self.present[:whole], size)
        if len(self.columns) == 1:
            return self.at(np.append(np.unique(found[known]), np.arange(whole, len(self))))
        found = found.reshape(-1, len(self.columns))
        known = known.reshape(found.shape)
        kept = np.flatnonzero(known.any(axis=1))
        first = (np.arange(len(found)) // 3 * size + np.arange(len(found)) % 3)[kept]

        def taken(each: Array, missing: Any) -> Array:
            chosen = np.where(known, np.take_along_axis(each, found, axis=0), missing)[kept]
            return np.concatenate([chosen, each[whole:]])

        steps = np.append(self.steps[first], self.steps[whole:])
        frame = replace(self, steps=steps, cells=taken(self.cells, -1))
        return frame.with_values(taken(self.values, np.nan), taken(self.present, False))

    # ---- other formats

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with the column `step` and one for each tensor and reduction."""
        arrays, names = [from_numpy(self.steps)], ["step"]
        for reduction in self.reductions:
            values, present = self._numbers if reduction == self.reduction else self.read(reduction)
            for place, name in enumerate(self._labels(reduction)):
                arrays.append(from_numpy(values[:, place], present[:, place]))
                names.append(name)
        return pa.Table.from_arrays(arrays, names=names)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame: steps as the index, a column per tensor and reduction.

        Raises:
            SMDebugRuntimeError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise SMDebugRuntimeError(
                "to_pandas needs pandas: pip install 'tornasole[sql]'"
            ) from error
        parts = [self._numbers if r == self.reduction else self.read(r) for r in self.reductions]
        labels = [label for r in self.reductions for label in self._labels(r)]
        values = np.concatenate([values for values, _ in parts], axis=1)
        return pandas.DataFrame(values, pandas.Index(self.steps, name="step"), labels)

    def plot(self, ax: Any = None) -> Any:
        """Plot a line for each column over the steps, with matplotlib; see `Trial.plot`.

        Args:
            ax: the axes to draw on; new ones when None.

        Returns:
            The axes.
        """
        from smdebug.trials.plot.trial_plot import plot_frame

        return plot_frame(self, self._labels(self.reduction), ax)

    def _repr_html_(self) -> str:
        """Return a table for notebooks: the first and the last steps and columns."""
        from smdebug.trials.notebook.html import frame_html

        return frame_html(self, self._labels(self.reduction))

    def _labels(self, reduction: str) -> list[str]:
        """Return the names of the columns: as short as tells them apart."""
        end = f":{reduction}" if len(self.reductions) > 1 else ""
        return [
            each.tensor + end + (f"@{each.worker}" if each.worker else "") for each in self.columns
        ]

    def __repr__(self) -> str:
        steps = f"{len(self)} steps"
        if len(self):
            steps += f" ({self.steps[0]} to {self.steps[-1]})"
        return f"<Frame of {', '.join(self.reductions)}: {steps} x {len(self.columns)} tensors>"


def _buckets(values: Floats, present: Bools, size: int) -> tuple[Ints, Bools]:
    """Return where each column has its minimum, its maximum and a non-finite value, by bucket.

    Returns:
        Indices of steps, as (buckets, 3, columns), and where there is one.
    """
    count, width = -(-len(values) // size), values.shape[1]
    padding = ((0, count * size - len(values)), (0, 0))
    cube = np.pad(np.where(present, values, np.nan), padding, constant_values=np.nan)
    cube = cube.reshape(count, size, width)
    finite = np.isfinite(cube)
    there = np.pad(present, padding).reshape(count, size, width)
    bad = there & ~finite
    low = np.where(finite, cube, np.inf).argmin(axis=1)
    high = np.where(finite, cube, -np.inf).argmax(axis=1)
    found = np.stack([low, high, bad.argmax(axis=1)], axis=1)
    some = finite.any(axis=1)
    # One point where all values of a bucket are equal.
    known = np.stack([some, some & (low != high), bad.any(axis=1)], axis=1)
    return found + np.arange(count)[:, None, None] * size, known
