"""A model that does well on what it was trained on, and not on the rest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.rules.detectors.evaluation_rule import EvaluationRule
from smdebug.storage.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.rules.detectors.evaluation import Evaluation
    from smdebug.trials.trial import Trial

# How many standard errors a difference must have.
_ERRORS = 3.0


class _Gap(NamedTuple):
    """The evaluations in a row that were too high."""

    evaluations: int = 0
    width: float = 0.0
    variance: float = 0.0

    def wider(self, done: Evaluation) -> _Gap:
        width = self.width + done.validation - done.train
        return _Gap(self.evaluations + 1, width, self.variance + done.variance)

    @property
    def is_more_than_chance(self) -> bool:
        return self.width >= _ERRORS * math.sqrt(self.variance)


class Overfit(EvaluationRule):
    """Fires when the validation loss is higher than the training loss by a share of it.

    With V the mean of the losses of one evaluation, and T the mean of the losses of the training
    since the evaluation before it, of the same tensor and worker, the rule fires when

        (V - T) / |T| > ratio_threshold

    at `patience` evaluations in a row. The mean of a few batches is noisy, so the differences V - T
    of the evaluations in a row must also be more than chance, taken together: their sum at least
    three standard errors. The variance of one of them is s^2 (1/n + 1/m) when n training losses and
    m losses of the evaluation are in the means, with s^2 half the mean squared difference of
    training losses that follow each other. A gap that stays is found soon, whatever the noise.

    `val_loss`, `train_loss` and `loss` count as one tensor. An evaluation is a run of EVAL steps
    without a step of another mode between them; it is judged when it is over, and found at the
    first step after it (at its last one when none came). An evaluation without training before it
    is left out, and so is one where T or V is not finite.

    Of XGBoost, V is a loss of any data set and T the same one of the data set called `train`, of
    the same round.

    Args:
        base_trial: the trial to look at.
        tensor_regex: regexes of the losses, a list or a string with commas; None looks at the
            collection `losses`.
        start_step: the first global step to look at.
        patience: how many evaluations in a row must be too high.
        ratio_threshold: by which share of the training loss the validation loss may be higher.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["Overfit:patience=3,ratio_threshold=0.2"])  # doctest: +SKIP
    """

    def __init__(
        self,
        base_trial: Trial | None,
        tensor_regex: Any = None,
        start_step: Any = 0,
        patience: Any = 1,
        ratio_threshold: Any = 0.1,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.start_step = validation.whole_number("start_step", start_step)
        self.patience = validation.whole_number("patience", patience, minimum=1)
        self.ratio_threshold = validation.number("ratio_threshold", ratio_threshold, minimum=0)
        regexes = validation.comma_list("tensor_regex", tensor_regex)
        self.losses = self.choose(None if regexes else [CollectionKeys.LOSSES], regexes)
        self._in_a_row: dict[object, _Gap] = {}

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The losses, of training and of evaluation."""
        return self.losses.needs("overfit", ("mean",))

    def start_over(self) -> None:
        """Forgets what the losses were."""
        super().start_over()
        self._in_a_row.clear()

    def check_evaluation(self, done: Evaluation) -> Iterator[Finding]:
        """Compares an evaluation with what went before it."""
        if not done.trained:
            return
        self.compared = True
        if not (math.isfinite(done.train) and math.isfinite(done.validation)):
            return
        ratio, moment = _ratio(done), done.known
        gap = self._in_a_row.get(done.column, _Gap())
        gap = gap.wider(done) if ratio > self.ratio_threshold else _Gap()
        self._in_a_row[done.column] = gap
        holds = gap.evaluations >= self.patience and gap.is_more_than_chance
        if self.started(done.column, holds, moment.step):
            message = (
                f"{done.column.tensor} is {done.validation:.4g} in the evaluation of steps "
                f"{done.first} to {done.last}, {ratio:.0%} above the {done.train:.4g} of the "
                f"training before it, more than {self.ratio_threshold:.0%}: the model overfits"
            )
            yield Finding(
                self.rule_name, moment.step, message, done.column.tensor, ratio,
                self.ratio_threshold, moment.mode, moment.mode_step, done.column.worker,
            )  # fmt: skip


def _ratio(done: Evaluation) -> float:
    if done.train == 0:
        return math.inf if done.validation > 0 else 0.0
    return (done.validation - done.train) / abs(done.train)
