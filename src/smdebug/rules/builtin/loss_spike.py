"""A loss that jumps far above what it was."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.mode_keys import ModeKeys
from smdebug.rules.detectors.evaluation import Evaluations, by_mode, choose_losses, is_validation
from smdebug.rules.detectors.spikes import SpikeLimits, beginnings
from smdebug.rules.rule import Rule
from smdebug.storage.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.rules.detectors.evaluation import Evaluation
    from smdebug.trials.frame import Frame
    from smdebug.trials.trial import Trial

# Noise that a loss is always granted: 5 % of it.
_FLOOR = 0.05


class LossSpike(Rule):
    """Fires when a loss is far above the values before it, or no longer finite.

    A value is compared with the last `window` saved values of the same tensor, worker and mode:
    with their median and `factor` times their robust deviation, as `SpikeLimits` has it. The
    deviation is at least 5 % of the median and 1 % of the level at which the loss began, so that a
    loss close to zero does not spike whenever a batch is hard. Where all those values are positive,
    the loss must stand out on a logarithmic scale as well: the losses of single batches often
    differ by a factor, not by an amount. With the defaults that is a jump by a half, or more where
    there is noise.

    Nothing is said before `min_history` values have come. A loss that rises and stays up is found
    where it rises. A value that is not finite is found when any finite one came before it.

    In EVAL one value is the mean of an evaluation, which is found when the evaluation is over: at
    the first step after it.

    Args:
        base_trial: the trial to look at.
        collection_names: collections of losses: a list or a string with commas.
        tensor_regex: regexes of losses: a list or a string with commas.
        use_losses_collection: look at the collection `losses` as well.
        window: how many saved values a value is compared with.
        factor: how many deviations above their median it must be.
        min_history: how many values must have come before.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["LossSpike:factor=12"])  # doctest: +SKIP
    """

    reads = ("mean",)

    def __init__(
        self,
        base_trial: Trial | None,
        collection_names: Any = None,
        tensor_regex: Any = None,
        use_losses_collection: Any = True,
        window: Any = 50,
        factor: Any = 8.0,
        min_history: Any = 10,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.losses = choose_losses(self, collection_names, tensor_regex, use_losses_collection)
        limits = self._limits = SpikeLimits.checked(window, factor, min_history, _FLOOR)
        self.window, self.factor = limits.window, limits.factor
        self.min_history = limits.min_history
        self._rounds = Evaluations()

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The losses."""
        return self.losses.needs("loss_spike", ("mean",))

    def start_over(self) -> None:
        """Forgets what the losses were."""
        super().start_over()
        self._limits.clear()
        self._rounds.clear()

    def check(self, frame: Frame) -> Iterator[Finding]:
        """Compares every loss with those before it."""
        table = self.read(frame, "mean", self.losses)
        for mode, part in by_mode(frame, table).items():
            if mode in (ModeKeys.TRAIN, ModeKeys.GLOBAL):
                yield from self._judge_steps(frame, mode, part)
        for done in self._rounds.add(frame, table):
            yield from self._judge_evaluation(done)

    def finish(self) -> Iterator[Finding]:
        """Compares the last evaluation."""
        for done in self._rounds.end():
            yield from self._judge_evaluation(done)

    def _judge_steps(self, frame: Frame, mode: ModeKeys, table: Frame) -> Iterator[Finding]:
        for place, column in enumerate(table.columns):
            if is_validation(column.tensor):
                continue
            rows = np.flatnonzero(table.present[:, place])
            values, steps, key = table.values[rows, place], table.steps[rows], (mode, column)
            finite = np.isfinite(values)
            follows = (np.cumsum(finite) > 0) | self._limits.begun(key)
            limits = self._limits.add(key, values)
            holds = (finite & (values > limits)) | (~finite & follows)
            for where in beginnings(self, key, steps, holds):
                value, limit = float(values[where]), float(limits[where])
                message = f"{column.tensor} {self._said(value, limit)}"
                yield self.finding(frame, int(steps[where]), message, column, value, limit)

    def _judge_evaluation(self, done: Evaluation) -> Iterator[Finding]:
        column, value, key = done.column, done.validation, (ModeKeys.EVAL, done.column)
        follows = self._limits.begun(key)
        limit = float(self._limits.add(key, np.array([value]))[0])
        holds = value > limit if math.isfinite(value) else follows
        if self.started(key, holds, done.known.step):
            message = (
                f"{column.tensor} in the evaluation of steps {done.first} to {done.last} "
                f"{self._said(value, limit)}"
            )
            step, mode, mode_step = done.known
            yield Finding(
                self.rule_name, step, message, column.tensor, value, limit, mode, mode_step,
                column.worker,
            )  # fmt: skip

    def _said(self, value: float, limit: float) -> str:
        if not math.isfinite(value):
            return f"is {value} after finite values: training has broken down"
        return (
            f"has jumped to {value:.4g}: the last {self.window} saved values or fewer allow up to "
            f"{limit:.4g}"
        )
