"""Tensors that stay as they are from step to step."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.reductions import Array
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Column, Frame
    from smdebug.trials.index_rows import Bools, Floats
    from smdebug.trials.trial import Trial

_COMPARED = ("min", "max", "mean", "l2")


class UnchangedTensor(Rule):
    """Fires when the last `num_steps` saved values of a tensor are all close to one another.

    Two values are close as `numpy.allclose` has it: |a - b| <= atol + rtol * |b| for all elements,
    where b is the older. Values of different shapes are not.

    Where the tensors themselves were not saved, their min, max, mean and l2 are compared instead:
    all of them that were saved at both steps must be close, and there must be one. A tensor that
    moves while these stay as they are is then taken to be unchanged. A tensor saved at some steps
    and reduced at others is compared with its own kind only.

    Args:
        base_trial: the trial to look at.
        collection_names: collections to look at: a list or a string with commas. This or
            `tensor_regex` must be given.
        tensor_regex: regexes of tensors to look at: a list or a string with commas.
        num_steps: how many saved values must be close, at least 2.
        rtol: how much they may differ, relative to their size.
        atol: how much they may differ, whatever their size.
        equal_nan: NaN is close to NaN.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["UnchangedTensor:collection_names=weights"])  # doctest: +SKIP
    """

    reads = _COMPARED

    def __init__(
        self,
        base_trial: Trial | None,
        collection_names: Any = None,
        tensor_regex: Any = None,
        num_steps: Any = 3,
        rtol: Any = 1e-5,
        atol: Any = 1e-8,
        equal_nan: Any = False,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.num_steps = validation.whole_number("num_steps", num_steps, minimum=2)
        self.rtol = validation.number("rtol", rtol, minimum=0)
        self.atol = validation.number("atol", atol, minimum=0)
        self.equal_nan = validation.boolean("equal_nan", equal_nan)
        self.tensors = self.choose_given(collection_names, tensor_regex)
        # Of every column, what it was at the last steps: tensors, and numbers.
        self._values: dict[Column, _Recent] = {}
        self._numbers: dict[Column, Floats] = {}
        self._runs: dict[Column, int] = {}

    def needs(self) -> tuple[TensorRequirement, ...]:
        """Four numbers of each chosen tensor: far smaller than the tensor, and seldom deceived."""
        return self.tensors.needs("unchanged_tensor", _COMPARED)

    def start_over(self) -> None:
        """Forgets what tensors were."""
        super().start_over()
        self._values.clear()
        self._numbers.clear()
        self._runs.clear()

    def check(self, frame: Frame) -> Iterator[Finding]:
        """Compares every tensor with what it was."""
        table = frame.where_saved(self.tensors)
        raw = table.has_value
        if raw.any():
            yield from self._judge_values(frame)
        if (table.present & ~raw).any():
            yield from self._judge_numbers(frame, table, ~raw)

    # ---- tensors

    def _judge_values(self, frame: Frame) -> Iterator[Finding]:
        for step, column, array in self.read_raw(frame, self.tensors):
            if array.dtype.kind in "USO" or not array.size:
                continue
            recent = self._values.setdefault(column, _Recent(self.num_steps - 1))
            alike = recent.take(array, self._all_close)
            if self.started(("values", column), alike >= self.num_steps, step):
                yield self.finding(
                    frame, step, self._sentence(column), column, threshold=self.rtol
                )  # fmt: skip

    def _all_close(self, now: Array, before: Array) -> bool:
        if now.shape != before.shape:
            return False
        wide = np.complex128 if now.dtype.kind == "c" else np.float64
        return bool(
            np.allclose(
                now.astype(wide), before.astype(wide), self.rtol, self.atol, self.equal_nan
            )
        )  # fmt: skip

    def _sentence(self, column: Column, _: float = 0.0) -> str:
        return (
            f"{column.tensor} does not change: its last {self.num_steps} saved values are equal "
            f"within rtol {self.rtol:g} and atol {self.atol:g}"
        )

    # ---- numbers

    def _judge_numbers(self, frame: Frame, table: Frame, where: Bools) -> Iterable[Finding]:
        """Compares reductions: a column at a time, all of its steps at once."""
        laid = [
            self.read_cells(table, name, self.tensors, where) for name in _COMPARED
        ]  # fmt: skip
        values = np.stack([np.where(known, each, np.nan) for each, known in laid], axis=-1)
        given = np.stack([known for _, known in laid], axis=-1)
        present = np.any(given, axis=-1)
        holds = np.zeros(table.present.shape, bool)
        for place in np.flatnonzero(present.any(axis=0)).tolist():
            rows = np.flatnonzero(present[:, place])
            fresh = np.stack([values[rows, place], given[rows, place]], axis=1)
            holds[rows, place] = self._unchanged(table.columns[place], fresh)
        return self.findings_where(
            frame,
            table.with_values(table.values, present),
            holds,
            self._sentence,
            self.rtol,
            about="numbers",
        )

    def _unchanged(self, column: Column, fresh: Floats) -> Bools:
        """At which of a column's new rows its last numbers are all close.

        Args:
            column: the column.
            fresh: for each row the numbers, and whether each of them was saved.
        """
        kept = self._numbers.get(column, fresh[:0])
        rows = np.concatenate([kept, fresh])
        # How many rows up to each one are close to it, itself included.
        alike = np.ones(len(rows), np.int64)
        for back in range(1, self.num_steps):
            close = np.zeros(len(rows), bool)
            close[back:] = self._close(rows[back:], rows[:-back])
            alike = np.where(close & (alike == back), back + 1, alike)
        run = self._runs.get(column, 0)
        runs = []
        for number in alike[len(kept) :].tolist():
            run = min(run + 1, number)
            runs.append(run)
        self._numbers[column] = rows[len(rows) - min(len(rows), self.num_steps - 1) :]
        self._runs[column] = run
        return np.array(runs) >= self.num_steps

    def _close(self, now: Floats, before: Floats) -> Bools:
        """Row by row: whether all numbers that both rows have are close, and there is one."""
        both = (now[:, 1] != 0) & (before[:, 1] != 0)
        close = np.isclose(now[:, 0], before[:, 0], self.rtol, self.atol, self.equal_nan)
        found: Bools = (close | ~both).all(axis=1) & both.any(axis=1)
        return found


class _Recent:
    """The last values of one tensor.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int) -> None:
        self._arrays: deque[Array] = deque(maxlen=most)
        self._run = 0

    def take(self, array: Array, close: Any) -> int:
        """Adds a value; returns how many of the last ones are all close to one another."""
        alike = 1
        # No further back than the run of those before it: they are not all close anyway.
        for before in list(self._arrays)[::-1][: self._run]:
            if not close(array, before):
                break
            alike += 1
        self._arrays.append(array)
        self._run = alike
        return alike
