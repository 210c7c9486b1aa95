"""A rule about evaluations: each is compared with the training that went before it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from smdebug.rules.detectors.evaluation import Evaluations, rows_of
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.rules.detectors.evaluation import Evaluation
    from smdebug.rules.tensor_choice import TensorChoice
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Frame
    from smdebug.trials.trial import Trial


class EvaluationRule(Rule):
    """Judges rounds: an evaluation, and the training since the one before.

    Args:
        base_trial: the trial to look at.
        action_str: see `Rule`.

    Attributes:
        losses: the losses it looks at; a subclass chooses them.
        start_step: the first global step that counts.
        compared: whether there was an evaluation with training before it.
    """

    reads = ("mean",)
    losses: TensorChoice

    def __init__(self, base_trial: Trial | None, action_str: Any = "") -> None:
        super().__init__(base_trial, action_str)
        self.start_step = 0
        self.compared = False
        self._rounds = Evaluations(data_sets=True)

    @abstractmethod
    def check_evaluation(self, done: Evaluation) -> Iterator[Finding]:
        """Yields what is wrong with a round that is over."""

    def start_over(self) -> None:
        """Forgets what the losses were."""
        super().start_over()
        self.compared = False
        self._rounds.clear()

    def missing(self) -> str:
        """What the rule needed and did not find, in words."""
        missing = super().missing()
        if missing or self.compared:
            return missing
        return (
            "the run has no evaluation of a loss that was saved in training before it as well: "
            "modes TRAIN and EVAL are needed, as hook.set_mode gives them (of XGBoost: metrics of "
            "a data set called train and of another)"
        )

    def check(self, frame: Frame) -> Iterator[Finding]:
        """Judges the rounds that are over."""
        table = self.read(frame, "mean", self.losses)
        table = rows_of(table, table.steps >= self.start_step)
        for done in self._rounds.add(frame, table):
            yield from self.check_evaluation(done)

    def finish(self) -> Iterator[Finding]:
        """Judges the last round."""
        for done in self._rounds.end():
            yield from self.check_evaluation(done)
