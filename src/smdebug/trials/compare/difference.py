"""Where two runs differ: the first step and tensor, in the order training computed them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import REDUCTION_NAMES, canonical_reduction, compute_reduction
from smdebug.storage.arrow import from_numpy, to_numpy
from smdebug.storage.raw_tensors import VALUE_COLUMNS
from smdebug.storage.v2.row_checks import shape_elements
from smdebug.trials.compare.alignment import Alignment, Pairs, Unmatched, other_dtypes, other_shapes
from smdebug.trials.compare.tolerance import Mismatch, Tolerance
from smdebug.trials.select import regex_of
from smdebug.trials.selection import stretches

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from smdebug.reductions import Array
    from smdebug.trials.trial import Trial

    Tables = tuple[pa.Table, pa.Table]
    # By row, what differs and how.
    Wrong = dict[int, tuple[str, Mismatch]]

# How many differences are named unless all are asked for.
_MOST_NAMED = 10
_KIND = ["dtype", "shape"]


@dataclass(frozen=True)
class Difference:
    """A tensor of a step that differs between two runs.

    Attributes:
        step: the step, in the numbering that was asked for.
        tensor: the tensor's name.
        worker: whose.
        place: which one it is in its step of the first run, in the order of computing, from 1.
        of: how many tensors this step of the first run has.
        what: "value", the name of a reduction, "dtype" or "shape".
        mismatch: by how much, and where.
    """

    step: int
    tensor: str
    worker: str
    place: int
    of: int
    what: str
    mismatch: Mismatch


@dataclass
class RunDifference:
    """How two runs differ.

    Attributes:
        differences: the first one, and what differs next; all of them if that was asked for.
        compared: how many tensors of steps were compared.
        skipped: how many both runs have, but nothing of that can be compared.
        complete: whether everything was compared; if not, it ended behind the first difference.
        only_first: what only the first run has: steps, tensors, workers, and single rows where all
            of these are in both.
        only_second: what only the second run has.
    """

    differences: list[Difference] = field(default_factory=list)
    compared: int = 0
    skipped: int = 0
    complete: bool = True
    only_first: dict[str, Unmatched] = field(default_factory=dict)
    only_second: dict[str, Unmatched] = field(default_factory=dict)

    @property
    def first(self) -> Difference | None:
        """The first difference; None when the runs do not differ."""
        return self.differences[0] if self.differences else None


def compare_runs(
    first: Trial,
    second: Trial,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    mode: ModeKeys = ModeKeys.GLOBAL,
    tensor: str | None = None,
    reduction: str | None = None,
    everything: bool = False,
    tell: Callable[[int, int], None] | None = None,
) -> RunDifference:
    """Compares two runs step by step, and in each step in the order training computed tensors.

    Values are compared where both runs have them, else every reduction that both have, as
    `numpy.isclose(first, second, rtol, atol, equal_nan=True)` does in float64; strings must be
    equal, and so must shapes and dtypes. Workers are paired by their names.

    Args:
        first: one trial.
        second: the other.
        rtol: how much two numbers may differ, relative to the second.
        atol: how much they may differ in any case.
        mode: only steps of this mode, paired by their number within it.
        tensor: only tensors in whose names this regular expression is found.
        reduction: compare this reduction only: the saved one, or that of the saved value.
        everything: go on behind the first differences.
        tell: called with the number of steps compared, and of all of them.

    Raises:
        SMDebugValueError: the runs have nothing in common that could be compared, or an argument
            makes no sense.

    Example:
        >>> found = compare_runs(create_trial("runs/a"), create_trial("runs/b"))  # doctest: +SKIP
        >>> found.first.step, found.first.tensor  # doctest: +SKIP
        (40, 'gradient/fc.weight')
    """
    for name, number in (("rtol", rtol), ("atol", atol)):
        if not 0 <= number < np.inf:
            raise SMDebugValueError(f"{name} must be a number of at least 0, got {number}")
    trials = first, second
    alignment = Alignment(trials, mode, regex_of("tensor", tensor))
    comparison = _Comparison(trials, Tolerance(rtol, atol), alignment, reduction, everything)
    comparison.run(tell)
    return comparison.found


class _Comparison:
    def __init__(
        self,
        trials: tuple[Trial, Trial],
        closeness: Tolerance,
        alignment: Alignment,
        reduction: str | None,
        everything: bool,
    ) -> None:
        self.found = RunDifference(only_first=alignment.only[0], only_second=alignment.only[1])
        self._trials = trials
        self._closeness = closeness
        self._alignment = alignment
        self._everything = everything
        self._reduction = None if reduction is None else canonical_reduction(reduction)
        present = [set(each.present_columns()) for each in trials]
        both = [name for name in REDUCTION_NAMES if name in present[0] & present[1]]
        self._reductions = both if self._reduction is None else [self._reduction]

    def run(self, tell: Callable[[int, int], None] | None) -> None:
        done, steps = 0, self._alignment.steps
        for part in self._alignment.parts():
            self._compare(self._alignment.pairs(part, [*VALUE_COLUMNS, *self._reductions]))
            done += len(part)
            if tell is not None:
                tell(done, len(steps))
            if self.found.differences and not self._everything and done < len(steps):
                self.found.complete = False
                return
        if not self.found.compared and not self.found.differences:
            raise SMDebugValueError(
                "the runs must have values or reductions in common to be compared; they share "
                f"{len(steps)} steps and {len(self._alignment.tensors)} tensors, but nothing that "
                "was saved of them in both"
            )

    def _compare(self, pairs: Pairs) -> None:
        for begin, end in stretches(_lengths(pairs.tables)):
            part = pairs.part(begin, end)
            wrong = self._wrong_rows(part.tables)
            for row in sorted(wrong):
                if not self._everything and len(self.found.differences) >= _MOST_NAMED:
                    self.found.complete = False
                    return
                self.found.differences.append(self._difference(part, row, *wrong[row]))

    def _difference(self, pairs: Pairs, row: int, what: str, mismatch: Mismatch) -> Difference:
        number = self._alignment.number
        (told,) = pairs.tables[0].select([number, "tensor", "worker"]).slice(row, 1).to_pylist()
        place, size = int(pairs.places[row]), int(pairs.sizes[row])
        return Difference(told[number], told["tensor"], told["worker"], place, size, what, mismatch)

    def _wrong_rows(self, tables: Tables) -> Wrong:
        """The rows that differ, with what differs in each."""
        saved = [_has_value(each) for each in tables]
        by_value = saved[0] & saved[1]
        wrong: Wrong = {}
        done = np.zeros(len(by_value), bool)
        if self._reduction is None:
            self._compare_values(tables, by_value, wrong)
            done |= by_value
            self._compare_kinds(tables, ~by_value, wrong)
            done[list(wrong)] = True
        self._compare_reductions(tables, ~done, wrong, done)
        if self._reduction is not None:
            self._compute_reductions(tables, ~done & (saved[0] | saved[1]), wrong, done)
        self.found.compared += int(done.sum())
        self.found.skipped += int((~done).sum())
        return wrong

    def _compare_values(
        self,
        tables: Tables,
        chosen: Array,
        wrong: Wrong,
    ) -> None:
        in_index = np.logical_and(*(to_numpy(each["value"].is_valid()) for each in tables))
        numbers = np.flatnonzero(chosen & in_index)
        kinds = [each.select(_KIND).take(from_numpy(numbers)) for each in tables]
        alike = ~(other_dtypes(*kinds) | other_shapes(*kinds))
        # Numbers that lie in both indexes are two columns.
        columns = numbers[alike]
        one, other = (to_numpy(each["value"])[columns] for each in tables)
        for at in np.flatnonzero(~self._closeness.close(one, other)).tolist():
            row = int(columns[at])
            shape = tuple(tables[0]["shape"][row].as_py() or ())
            wrong[row] = ("value", self._closeness.of_numbers(one[at], other[at], shape))
        left_over = chosen.copy()
        left_over[columns] = False
        rest = np.flatnonzero(left_over)
        if not len(rest):
            return
        values = [
            trial.row_values(each.take(from_numpy(rest)))
            for trial, each in zip(self._trials, tables, strict=True)
        ]
        for row, left, right in zip(rest.tolist(), *values, strict=True):
            if left is None or right is None:
                continue
            found = self._closeness.compare(left, right)
            if found is not None:
                wrong[row] = found

    def _compare_kinds(
        self, tables: Tables, chosen: Array,
        wrong: Wrong,
    ) -> None:  # fmt: skip
        """Compares dtypes and shapes of tensors whose values are not in both."""
        for name, find in (("dtype", other_dtypes), ("shape", other_shapes)):
            for row in np.flatnonzero(chosen & find(*tables)).tolist():
                sides = [each[name][row].as_py() for each in tables]
                wrong.setdefault(row, (name, Mismatch(*sides)))

    def _compare_reductions(
        self,
        tables: Tables,
        chosen: Array,
        wrong: Wrong,
        done: Array,
    ) -> None:
        for name in self._reductions:
            valid = np.logical_and(*(to_numpy(each[name].is_valid()) for each in tables))
            rows = np.flatnonzero(chosen & valid)
            one, other = (to_numpy(each[name])[rows] for each in tables)
            done[rows] = True
            for at in np.flatnonzero(~self._closeness.close(one, other)).tolist():
                mismatch = self._closeness.of_numbers(one[at], other[at], ())
                wrong.setdefault(int(rows[at]), (name, mismatch))

    def _compute_reductions(
        self,
        tables: Tables,
        chosen: Array,
        wrong: Wrong,
        done: Array,
    ) -> None:
        """The one reduction, where at least one run has only the value."""
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return
        sides = [
            self._reduced(trial, each.take(from_numpy(rows)))
            for trial, each in zip(self._trials, tables, strict=True)
        ]
        for row, one, other in zip(rows.tolist(), *sides, strict=True):
            if one is None or other is None:
                continue
            done[row] = True
            if not self._closeness.close(np.float64(one), np.float64(other)):
                mismatch = self._closeness.of_numbers(one, other, ())
                wrong[row] = (str(self._reduction), mismatch)

    def _reduced(self, trial: Trial, table: pa.Table) -> list[float | None]:
        name = str(self._reduction)
        found: list[float | None] = []
        values = trial.row_values(table)
        for saved, value in zip(table[name].to_pylist(), values, strict=True):
            if saved is not None:
                found.append(saved)
            elif value is None or value.dtype.kind in "USOc":
                found.append(None)
            else:
                found.append(float(compute_reduction(value, name)))
        return found


def _has_value(table: pa.Table) -> Array:
    """Rows whose value is saved: in a record, in the index, or because there is nothing in it."""
    saved: Array = to_numpy(table["offset"].is_valid()) | to_numpy(table["value"].is_valid())
    saved |= shape_elements(table) == 0
    return saved


def _lengths(tables: Tables) -> list[int]:
    """How many bytes the tensors of a row of both tables take together."""
    found = sum(np.nan_to_num(to_numpy(each["length"]).astype(np.float64)) for each in tables)
    lengths: list[int] = np.asarray(found).astype(np.int64).tolist()
    return lengths
