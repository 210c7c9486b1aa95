"""Tensors that differ between two runs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.analysis.utils import no_refresh, refresh
from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.exceptions import SMDebugTypeError
from smdebug.reductions import REDUCTION_NAMES
from smdebug.rules.rule import Rule
from smdebug.rules.rule_frames import frame_of_steps, rule_frames
from smdebug.trials.create import create_trial
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.reductions import Array
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Column, Frame
    from smdebug.trials.index_rows import Bools

# numpy.allclose's own.
_RTOL, _ATOL = 1e-5, 1e-8
_SAVED = ("min", "max", "mean", "l2")


class SimilarAcrossRuns(Rule):
    """Fires when a tensor differs between the run and another one at the same step.

    Tensors are paired by name, global step, mode and worker; where both runs have one worker, its
    name does not matter. Two values are compared as by `numpy.allclose`, |a - b| <= 1e-8 + 1e-5 *
    |b| with b of the other run; NaN equals NaN, and another shape is a difference. Where one of the
    runs has not saved the tensor itself, every reduction that both have must be close.

    A step or a tensor that one of the runs has not is no difference. While the other run is still
    going, steps it has not reached are compared when they come.

    Args:
        base_trial: the trial to look at.
        other_trial: the trial to compare with, or where it is.
        collection_names: collections to look at: a list or a string with commas.
        tensor_regex: regexes of tensors to look at: a list or a string with commas. All tensors,
            when neither is given.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["SimilarAcrossRuns:other_trial=/tmp/before"])  # doctest: +SKIP
    """

    # Steps that the other run has not reached are compared when it has.
    looks_back = True

    def __init__(
        self,
        base_trial: Trial | None,
        other_trial: Any,
        collection_names: Any = None,
        tensor_regex: Any = None,
        action_str: Any = "",
    ) -> None:
        other = _opened(other_trial, base_trial is not None)
        super().__init__(base_trial, action_str, None if other is None else [other])
        self.other_trial = other
        self.tensors = self.choose(collection_names, tensor_regex, everything=True)
        # Up to here steps of the run were judged, and were compared with the other run.
        self._reached = self._compared = -1

    def needs(self) -> tuple[TensorRequirement, ...]:
        """Four numbers of the chosen tensors; when none are chosen, of all that is trained."""
        if self.tensors.collections or self.tensors.regexes:
            return self.tensors.needs("similar_across_runs", _SAVED)
        trained = (CollectionKeys.WEIGHTS, CollectionKeys.BIASES, CollectionKeys.GRADIENTS)
        losses = TensorRequirement(CollectionKeys.LOSSES, raw=True)
        return (losses, *(TensorRequirement(name, _SAVED) for name in trained))

    def start_over(self) -> None:
        """Forgets how far the runs were compared."""
        super().start_over()
        self._reached = self._compared = -1

    def missing(self) -> str:
        """What kept the runs from being compared."""
        if self.tensors.seen or not self.tensors.matched or self.other_trial is None:
            return super().missing()
        return (
            f"{self.other_trial.name} has no step at which it saved one of the "
            f"{self.tensors.described} that {self.base_trial.name} saved at the same step. Save "
            f"both runs with the same schedule; {self.remedy()}"
        )

    def check(self, frame: Frame) -> Iterator[Finding]:
        """Compares the steps of a frame as far as the other run has come."""
        if len(frame):
            self._reached = int(frame.steps[-1])
        return self._catch_up()

    def idle(self, now: float) -> Iterator[Finding]:
        """Compares steps that the other run has reached since."""
        return self._catch_up()

    def finish(self) -> Iterator[Finding]:
        """Compares what the other run has by now."""
        return self._catch_up()

    def invoke_at_step(self, step: int) -> bool:
        """Says whether a tensor differs at a global step, as far as the other run has come."""
        super().invoke_at_step(step)
        for finding in self._catch_up():
            self._found.setdefault(finding.step, finding)
        return bool(super().invoke_at_step(step))

    # ---- inside

    def _catch_up(self) -> Iterator[Finding]:
        """Compares the judged steps that were not compared and that the other run has passed."""
        other = self.other_trial
        assert other is not None
        # Whoever holds the run still while it is judged does not mean the other one.
        with refresh(other):
            other.maybe_refresh()
        with no_refresh([self.base_trial, other]):
            # Steps before the last complete one do not come any more.
            passed = self._reached if other.loaded_all_steps else other.last_complete_step
            end = min(self._reached, passed)
            # What is kept is how far it went, never a value: the runs hold those.
            for mine in rule_frames(self.base_trial, self._compared + 1, REDUCTION_NAMES):
                steps = mine.steps[mine.steps <= end]
                if not len(steps):
                    break
                first, last = int(steps[0]), int(steps[-1])
                if last < mine.steps[-1]:
                    mine = frame_of_steps(self.base_trial, first, last + 1, REDUCTION_NAMES)
                theirs = frame_of_steps(other, first, last + 1, REDUCTION_NAMES)
                yield from self._compare(mine, theirs)
                self._compared = last

    def _compare(self, mine: Frame, theirs: Frame) -> Iterator[Finding]:
        self.tensors.look_at(self.base_trial)
        pairs = _pairs(mine.where_saved(self.tensors), theirs.where_saved(), mine, theirs)
        if pairs is None:
            return
        here, there = pairs
        raw = here.has_value & there.has_value
        self.tensors.seen = self.tensors.seen or bool(raw.any())
        differences = self._by_value(mine, theirs, here, there, raw)
        self._by_numbers(mine, theirs, here, there, here.present & ~raw, differences)
        # Most tensors neither differ nor did.
        places = {place for _, place in differences}
        held = [not self.is_cooled_down(column) for column in here.columns]
        places |= {place for place, holds in enumerate(held) if holds}
        for row, step in enumerate(here.steps.tolist()):
            for place in sorted(place for place in places if here.present[row, place]):
                column, found = here.columns[place], differences.get((row, place))
                if self.started(column, found is not None, step) and found is not None:
                    yield self.finding(
                        mine, step, self._sentence(column, found), column, found.size, found.allowed
                    )  # fmt: skip

    def _sentence(self, column: Column, found: _Difference) -> str:
        other = self.other_trial
        assert other is not None
        # Runs of one script often have the same name.
        name = other.path if other.name == self.base_trial.name else other.name
        return f"{column.tensor} is not what it is in {name}: {found.told}"

    def _by_value(
        self, mine: Frame, theirs: Frame, here: Frame, there: Frame, where: Bools
    ) -> dict[tuple[int, int], _Difference]:
        """Compares the tensors themselves, step by step."""
        names = {here.columns[place].tensor for place in np.flatnonzero(where.any(axis=0))}
        rows = {int(here.steps[row]): row for row in np.flatnonzero(where.any(axis=1)).tolist()}
        found: dict[tuple[int, int], _Difference] = {}
        if not names:
            return found
        others = _by_step(theirs, names)
        for step, arrays in _by_step(mine, names):
            if step not in rows:
                continue
            row = rows[step]
            counterparts = next(each for number, each in others if number == step)
            for place in np.flatnonzero(where[row]).tolist():
                pair = arrays[here.columns[place]], counterparts[there.columns[place]]
                difference = _value_difference(*pair)
                if difference is not None:
                    found[row, place] = difference
        return found

    def _by_numbers(
        self,
        mine: Frame,
        theirs: Frame,
        here: Frame,
        there: Frame,
        where: Bools,
        found: dict[tuple[int, int], _Difference],
    ) -> None:
        """Adds what differs in the reductions that both runs have."""
        if not where.any():
            return
        for name in REDUCTION_NAMES:
            a, ours = here.read(name, where)
            b, others = there.read(name, where if ours.any() else ours)
            both = ours & others
            if not both.any():
                continue
            self.tensors.seen = True
            apart = both & (a != b)
            apart[apart] = ~np.isclose(a[apart], b[apart], _RTOL, _ATOL, equal_nan=True)
            for row, place in np.argwhere(apart).tolist():
                told = f"its {name} is {a[row, place]:.6g} here and {b[row, place]:.6g} there"
                size = float(abs(a[row, place] - b[row, place]))
                allowed = float(_ATOL + _RTOL * abs(b[row, place]))
                found.setdefault((row, place), _Difference(told, size, allowed))


class _Difference(NamedTuple):
    """How a tensor differs: in words, by how much, and how much it may."""

    told: str
    size: float | None
    allowed: float | None


def _opened(given: Any, wanted: bool) -> Trial | None:
    """The other trial; a path is opened only when there is something to compare it with."""
    if isinstance(given, Trial):
        return given
    if not isinstance(given, str) and not hasattr(given, "__fspath__"):
        raise SMDebugTypeError(
            "other_trial must be a trial or the path of one, "
            f"got {validation.short_repr(given)} of type "
            f"{type(given).__name__}"
        )
    path = validation.text("other_trial", str(given))
    return create_trial(path) if wanted else None


def _pairs(mine: Frame, theirs: Frame, frame: Frame, other: Frame) -> tuple[Frame, Frame] | None:
    """The cells that both tables have, laid out alike; None when there are none."""
    workers = [{column.worker for column in each.columns} for each in (mine, theirs)]
    alone = all(len(each) == 1 for each in workers)

    def key(column: Column) -> tuple[str, str]:
        return column.tensor, "" if alone else column.worker

    known = {key(column): place for place, column in enumerate(theirs.columns)}
    places = [place for place, column in enumerate(mine.columns) if key(column) in known]
    counterparts = [known[key(mine.columns[place])] for place in places]
    steps = [
        step
        for step in np.intersect1d(mine.steps, theirs.steps).tolist()
        if frame.mode_at(step)[0] is other.mode_at(step)[0]
    ]
    if not places or not steps:
        return None
    here, there = _picked(mine, steps, places), _picked(theirs, steps, counterparts)
    both = here.present & there.present
    return here.with_values(here.values, both), there.with_values(there.values, both)


def _picked(table: Frame, steps: list[int], places: list[int]) -> Frame:
    """Some steps and columns of a table."""
    return table.at(np.searchsorted(table.steps, steps), np.array(places))


def _by_step(frame: Frame, names: set[str]) -> Iterator[tuple[int, dict[Column, Array]]]:
    """The tensors of these names, all of a step at a time."""
    for step, values in itertools.groupby(
        frame.select(names.__contains__).raw_values(), lambda each: each.step
    ):
        yield step, {value.column: value.array for value in values}


def _value_difference(a: Array, b: Array) -> _Difference | None:
    if a.shape != b.shape:
        return _Difference(f"its shape is {a.shape} here and {b.shape} there", None, None)
    if a.dtype.kind in "USO" or b.dtype.kind in "USO":
        return None if np.array_equal(a, b) else _Difference("its text is another", None, None)
    kind = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    a, b = a.astype(kind), b.astype(kind)
    apart = ~np.isclose(a, b, _RTOL, _ATOL, equal_nan=True)
    if not apart.any():
        return None
    with np.errstate(invalid="ignore"):
        sizes = np.abs(a[apart] - b[apart])
    worst = int(np.argmax(np.where(np.isnan(sizes), np.inf, sizes)))
    told = (
        f"{apart.sum()} of its {apart.size} elements differ, one is {a[apart][worst]:.6g} here and "
        f"{b[apart][worst]:.6g} there"
    )
    return _Difference(told, float(sizes[worst]), float(_ATOL + _RTOL * abs(b[apart][worst])))
