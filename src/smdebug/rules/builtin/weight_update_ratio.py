"""Weights that move too far, or hardly at all, between saved steps."""

from __future__ import annotations

from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import compute_reduction
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.reductions import Array
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Column, Frame, RawValue
    from smdebug.trials.trial import Trial

# So often in a row a weight must stand still: it may do so once or twice while the learning rate
# warms up from 0, while gradients are accumulated, or when a gradient scaler skips a step.
SMALL_IN_A_ROW = 3
# So many steps in a row may pass without an update of any weight.
IDLE_IN_A_ROW = 25
# The collection in which a hook lists the parameters that are not to be trained.
FROZEN = "frozen_parameters"


class TrainingSteps:
    """Tells the steps that train: those of mode TRAIN, or, before the first of them, of no mode.

    Steps of the modes EVAL and PREDICT move no weight.
    """

    def __init__(self) -> None:
        self._trained = False

    def of(self, frame: Frame) -> set[int]:
        """The training steps of a frame, which follows the last one."""
        found = set()
        for step in frame.steps.tolist():
            mode, _ = frame.mode_at(step)
            self._trained = self._trained or mode is ModeKeys.TRAIN
            if mode is (ModeKeys.TRAIN if self._trained else ModeKeys.GLOBAL):
                found.add(step)
        return found


class WeightUpdateRatio(Rule):
    """Fires when a weight moves too far or hardly at all: the size of its update against its own.

    The ratio is l2(w - v) / (l2(v) + epsilon), where w is a weight and v what it was at the
    previous saved step, or, with `num_steps`, at the newest saved step at least `num_steps`
    earlier. It fires where the ratio is above `large_threshold`, and where it was below
    `small_threshold` three times in a row: a weight may stand still for a step or two while the
    learning rate warms up from 0.

    Where no weight of a worker has moved at all there was no update: gradients are accumulated, or
    a gradient scaler has skipped it. Such steps do not count, unless there are 25 saved ones in a
    row.

    A weight that was all zeros before has no ratio; neither has one that is not finite. Weights in
    the collection `frozen_parameters` are meant to stand still. Steps are those of mode TRAIN, and,
    until the first of them, those without a mode; numbers of steps are those of the mode.

    The weights themselves must be saved. All that were saved within the last `num_steps` steps are
    held at a time.

    Args:
        base_trial: the trial to look at.
        num_steps: how many steps back to compare; None for the previous saved step.
        large_threshold: the largest ratio that is in order.
        small_threshold: the smallest ratio that is in order.
        epsilon: keeps the ratio of a tiny weight in bounds.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["WeightUpdateRatio:large_threshold=1"])  # doctest: +SKIP
    """

    def __init__(
        self,
        base_trial: Trial | None,
        num_steps: Any = None,
        large_threshold: Any = 10.0,
        small_threshold: Any = 1e-8,
        epsilon: Any = 1e-9,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.num_steps = (
            None
            if num_steps is None
            else validation.whole_number("num_steps", num_steps, minimum=1)
        )
        self.large_threshold = validation.number("large_threshold", large_threshold, minimum=0)
        self.small_threshold = validation.number("small_threshold", small_threshold, minimum=0)
        self.epsilon = validation.number("epsilon", epsilon, minimum=0)
        if self.small_threshold > self.large_threshold:
            raise SMDebugValueError(
                f"small_threshold must not be above large_threshold, got {small_threshold!r} and "
                f"{large_threshold!r}"
            )
        self.weights = self.choose([CollectionKeys.WEIGHTS])
        self._training = TrainingSteps()
        self._history: dict[Column, deque[_Saved]] = {}
        self._small: dict[Column, int] = {}
        self._idle: dict[str, int] = {}

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The weights themselves: the size of a difference is not the difference of sizes."""
        return (TensorRequirement(CollectionKeys.WEIGHTS, raw=True),)

    def start_over(self) -> None:
        """Forgets the weights."""
        super().start_over()
        self._training = TrainingSteps()
        self._history.clear()
        self._small.clear()
        self._idle.clear()

    def check(self, frame: Frame) -> Iterable[Finding]:
        """Compares every weight with what it was."""
        steps = self._training.of(frame)
        frozen = frame.trial.collections().get(FROZEN)
        # Weights of other modes are not even read, if all training steps are of one.
        modes = {frame.mode_at(step)[0] for step in steps}
        mode = ModeKeys.TRAIN if modes == {ModeKeys.TRAIN} else ModeKeys.GLOBAL
        by_step = groupby(self.read_raw(frame, self.weights, mode), lambda value: value.step)
        for step, values in by_step:
            moves: dict[str, list[_Move]] = {}
            for value in values:
                intended = frozen is not None and frozen.matches(value.column.tensor)
                move = None if step not in steps or intended else self._move(frame, value)
                if move is not None:
                    moves.setdefault(value.column.worker, []).append(move)
            for worker, group in moves.items():
                if self._was_updated(worker, group):
                    for move in group:
                        yield from self._compare(frame, step, *move)

    def _was_updated(self, worker: str, moves: list[_Move]) -> bool:
        """Whether anything moved; when nothing has for long enough, that counts too."""
        still = all(move.ratio == 0 for move in moves)
        self._idle[worker] = self._idle.get(worker, 0) + 1 if still else 0
        return not still or self._idle[worker] >= IDLE_IN_A_ROW

    def _move(self, frame: Frame, value: RawValue) -> _Move | None:
        """How far a weight has moved; None when there is nothing to compare it with."""
        _, mode_step = frame.mode_at(value.step)
        before = self._before(value, mode_step)
        ratio = None if before is None else self._ratio(value.array, before.array)
        if before is None or ratio is None:
            return None
        return _Move(value.column, before.step, ratio)

    def _compare(
        self, frame: Frame, step: int, column: Column, since: int, ratio: float
    ) -> Iterator[Finding]:
        small = self._small.get(column, 0) + 1 if ratio < self.small_threshold else 0
        self._small[column] = small
        told = f"the norm of its change since step {since} is {ratio:.3g} times its own"
        if self.started(("large", column), ratio > self.large_threshold, step):
            yield self.finding(
                frame, step,
                f"{column.tensor} moves too far: {told}, above {self.large_threshold:.3g}; the "
                "learning rate may be too high",
                column, ratio, self.large_threshold, "large",
            )  # fmt: skip
        if self.started(("small", column), small >= SMALL_IN_A_ROW, step):
            yield self.finding(
                frame, step,
                f"{column.tensor} hardly moves: {told}, {SMALL_IN_A_ROW} times in a row below "
                f"{self.small_threshold:.3g}; the learning rate may be too low",
                column, ratio, self.small_threshold, "small",
            )  # fmt: skip

    def _before(self, value: RawValue, mode_step: int) -> _Saved | None:
        """What a weight is to be compared with; remembers the weight, and forgets older ones."""
        history = self._history.setdefault(value.column, deque())
        back = 1 if self.num_steps is None else self.num_steps
        # Whatever is behind the newest that is far enough back is not needed again.
        while len(history) > 1 and history[1].mode_step <= mode_step - back:
            history.popleft()
        found = history[0] if history and history[0].mode_step <= mode_step - back else None
        history.append(_Saved(value.step, mode_step, value.array))
        return found

    def _ratio(self, now: Array, before: Array) -> float | None:
        if now.shape != before.shape or now.dtype.kind in "USO":
            return None
        wide = np.complex128 if now.dtype.kind == "c" else np.float64
        size = float(compute_reduction(before, "l2"))
        with np.errstate(all="ignore"):
            change = np.asarray(now, wide) - np.asarray(before, wide)
        ratio = float(compute_reduction(change, "l2")) / (size + self.epsilon) if size else np.nan
        return ratio if np.isfinite(ratio) else None


class _Move(NamedTuple):
    """How far a weight has moved since a step, in units of its own size."""

    column: Column
    since: int
    ratio: float


class _Saved(NamedTuple):
    """A weight at a step."""

    step: int
    mode_step: int
    array: Array
