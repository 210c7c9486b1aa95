"""A job from which nothing comes any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.rules.action.entries import entries_of
from smdebug.rules.rule import Rule
from smdebug.storage.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.trials.frame import Frame
    from smdebug.trials.trial import Trial


class StalledTrainingRule(Rule):
    """Fires when no new tensor has come for some time.

    While the job runs, the time since its last saved step is looked at; when no step has come at
    all, the time since the rule was asked first. It is found at the last step. Over steps that are
    there, the time between one saved step and the next is looked at: a gap is found at the step
    that ended it, unless it was found before, while it lasted. The time of a step is when its first
    tensor was saved, by the clock of the job.

    A job that was interrupted and went on later in the same directory has a gap as well.

    Args:
        base_trial: the trial to look at.
        threshold: how many seconds without a new tensor are too many.
        stop_training_on_fire: stop the SageMaker training job when it fires.
        training_job_name_prefix: with what the name of that job begins.
        action_str: what else to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["StalledTrainingRule:threshold=600"])  # doctest: +SKIP
    """

    def __init__(
        self,
        base_trial: Trial | None,
        threshold: Any = 1800,
        stop_training_on_fire: Any = False,
        training_job_name_prefix: Any = None,
        action_str: Any = "",
    ) -> None:
        self.threshold = validation.seconds("threshold", threshold)
        self.stop_training_on_fire = validation.boolean(
            "stop_training_on_fire", stop_training_on_fire
        )
        self.training_job_name_prefix = training_job_name_prefix
        if self.stop_training_on_fire:
            action_str = [*entries_of(action_str), _stop(training_job_name_prefix)]
        super().__init__(base_trial, action_str)
        self._last: float | None = None
        self._waiting_since: float | None = None
        self._told = False

    def needs(self) -> tuple[TensorRequirement, ...]:
        """Anything; the losses are saved in any case."""
        return (TensorRequirement(CollectionKeys.LOSSES),)

    def start_over(self) -> None:
        """Forgets when steps came."""
        super().start_over()
        self._last = self._waiting_since = None
        self._told = False

    def missing(self) -> str:
        """What the rule needed and did not find, in words."""
        seen = self._last is not None or self._told
        return "" if seen else f"the run has no saved step. {self.remedy()}"

    def check(self, frame: Frame) -> Iterator[Finding]:
        """Looks at the time between saved steps."""
        for step, time in zip(frame.steps.tolist(), frame.times.tolist(), strict=True):
            gap = 0.0 if self._last is None else time - self._last
            if gap > self.threshold and not self._told:
                # Each gap is one of its own, also right behind another.
                self.note(step)
                message = f"nothing came for {gap:.0f} s before step {step}: {self._limit()}"
                yield self.finding(frame, step, message, value=gap, threshold=self.threshold)
            self._last = time if self._last is None else max(self._last, time)
            self._told = False

    def idle(self, now: float) -> Iterator[Finding]:
        """Looks at the time since the last step."""
        if self._waiting_since is None:
            self._waiting_since = now
        since = self._waiting_since if self._last is None else self._last
        if now - since <= self.threshold or self._told:
            return
        self._told = True
        after = "since the job is watched" if self._last is None else f"after step {self.last_step}"
        yield Finding(
            self.rule_name,
            max(self.last_step, 0),
            f"nothing has come for {now - since:.0f} s {after}: {self._limit()}",
            value=now - since,
            threshold=self.threshold,
            mode=ModeKeys.GLOBAL,
        )

    def _limit(self) -> str:
        return f"training has stalled, the limit is {self.threshold:g} s"


def _stop(prefix: Any) -> dict[str, str]:
    if not isinstance(prefix, str) or not prefix.strip():
        raise SMDebugValueError(
            "training_job_name_prefix must be given when stop_training_on_fire is true: the "
            f"beginning of the name of the SageMaker job; got {validation.short_repr(prefix)}"
        )
    return {"name": "stoptraining", "training_job_prefix": prefix}
