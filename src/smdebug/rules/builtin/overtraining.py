"""Training that goes on although nothing gets better."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.rules.detectors.evaluation_rule import EvaluationRule
from smdebug.storage.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.rules.detectors.evaluation import Evaluation
    from smdebug.trials.trial import Trial


@dataclass
class _Best:
    """The best value of a series, and how many have come since."""

    value: float = math.inf
    since: int = 0

    def take(self, value: float, delta: float) -> None:
        # In steps of a size that fits the loss: 0.1 is little for a loss of 5, and all of 0.05.
        least = delta * min(1.0, abs(self.value)) if math.isfinite(self.value) else 0.0
        if value < self.value and value <= self.value - least:
            self.value, self.since = value, 0
        else:
            self.since += 1


class Overtraining(EvaluationRule):
    """Fires when training goes on although neither loss gets better any more.

    The validation loss is the mean of each evaluation, the training loss the mean of the training
    between two evaluations, of the same tensor and worker (`val_loss`, `train_loss` and `loss`
    count as one). Each of the two has a best value. A value is the new best one when it is lower by
    at least

        delta * min(1, |best|)

    that is by `delta` where the loss is above 1, and by a share `delta` of it where it is below.
    The rule fires when the training loss has had no new best value for `patience_train` rounds, and
    the validation loss none for `patience_validation` evaluations. A value that is not finite is
    never the best one.

    It is judged when an evaluation is over, and found at the first step after it (at its last one
    when none came). Patience counts evaluations, not steps.

    Args:
        base_trial: the trial to look at.
        patience_train: how many rounds the training loss may go without getting better.
        patience_validation: how many evaluations the validation loss may.
        delta: what counts as better.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["Overtraining:delta=0.01"])  # doctest: +SKIP
    """

    def __init__(
        self,
        base_trial: Trial | None,
        patience_train: Any = 5,
        patience_validation: Any = 10,
        delta: Any = 0.1,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.patience_train = validation.whole_number("patience_train", patience_train, minimum=1)
        self.patience_validation = validation.whole_number(
            "patience_validation", patience_validation, minimum=1
        )
        self.delta = validation.number("delta", delta, minimum=0)
        self.losses = self.choose([CollectionKeys.LOSSES])
        self._best: dict[object, tuple[_Best, _Best]] = {}

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The losses, of training and of evaluation."""
        return (TensorRequirement(CollectionKeys.LOSSES, reductions=("mean",)),)

    def start_over(self) -> None:
        """Forgets what the losses were."""
        super().start_over()
        self._best.clear()

    def check_evaluation(self, done: Evaluation) -> Iterator[Finding]:
        """Compares an evaluation with what went before it."""
        train, validation = self._best.setdefault(done.column, (_Best(), _Best()))
        validation.take(done.validation, self.delta)
        if done.trained:
            self.compared = True
            train.take(done.train, self.delta)
        holds = (
            train.since >= self.patience_train and validation.since >= self.patience_validation
        )  # fmt: skip
        moment = done.known
        if self.started(done.column, holds, moment.step):
            message = (
                f"{done.column.tensor} has not got better in training for {train.since} rounds nor "
                f"in the last {validation.since} evaluations: their best mean is "
                f"{validation.value:.4g}, the last one {done.validation:.4g}"
            )
            yield Finding(
                self.rule_name, moment.step, message, done.column.tensor, done.validation,
                validation.value, moment.mode, moment.mode_step, done.column.worker,
            )  # fmt: skip
