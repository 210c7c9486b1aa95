"""Rules over the run that a hook is writing, evaluated on a thread of their own.

The one place of the write side that knows the read side: rules and trials are imported when a hook
with rules is made.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from smdebug.config import environment
from smdebug.exceptions import SMDebugValueError
from smdebug.storage.writer.publisher import flush_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.hook.fresh_run_store import FreshRunStore
    from smdebug.rules.outcome import RuleReport
    from smdebug.rules.registry import RuleSpec
    from smdebug.rules.runner import RuleRunner
    from smdebug.storage.findings import Finding
    from smdebug.trials.trial import Trial

logger = logging.getLogger("smdebug.hook")

# The rules whose condition can be seen in gradients before they are used.
BEFORE_UPDATE_RULES = ("NonFinite", "ExplodingTensor")
# How long training waits for the rules at its end, at most, and from when on it says so.
_PATIENCE, _SAYS_SO = 120.0, 5.0
# However often the writer publishes, looking takes time that training may need.
_SHORTEST_PAUSE = 0.1
# How long other workers may take to close after this one.
_OTHERS_TAKE = 30.0
# How many findings of one rule are logged at a time.
_SAID = 3


class RuleSet:
    """The rules of a hook, checked when the hook is made, before there is a run.

    Args:
        given: as `HookOptions.rules` has them.
        actions: what to do when one finds something, as `Rule` takes it.

    Raises:
        SMDebugValueError: there is no such rule, or a parameter makes no sense.
    """

    def __init__(self, given: Sequence[Any], actions: Any = None) -> None:
        from smdebug.rules.action.action import Actions
        from smdebug.rules.registry import RuleSpec

        self.specs: list[RuleSpec] = [RuleSpec(each) for each in given]
        self.needs: list[TensorRequirement] = [need for spec in self.specs for need in spec.needs()]
        self.actions = Actions(actions, "rules") if actions else None

    @property
    def names(self) -> list[str]:
        """The names of the rules."""
        return [spec.kind.__name__ for spec in self.specs]

    def before_update_rule(self) -> str:
        """The rule that stops the job before an optimizer uses bad gradients.

        Raises:
            SMDebugValueError: none of the rules is about non-finite values.
        """
        for name in self.names:
            if name in BEFORE_UPDATE_RULES:
                return name
        raise SMDebugValueError(
            f"before_update must be given with one of the rules {', '.join(BEFORE_UPDATE_RULES)}, "
            f"got rules={self.names}"
        )


class RuleThread:
    """Evaluates rules over a run while it is written.

    Args:
        rules: the rules.
        path: where the run is.
        own_run: the same as a store, without what an earlier job has left there.
        on_finding: called with everything that is found, on the thread of this object.
        flush_seconds: how long a step may stay unpublished, as the hook was told.
    """

    def __init__(
        self,
        rules: RuleSet,
        path: str,
        own_run: FreshRunStore,
        on_finding: Callable[[Finding], None],
        flush_seconds: float | None = None,
    ) -> None:
        self._rules = rules
        self._path = path
        self._own_run = own_run
        self._flush_seconds = flush_seconds
        self._tell = on_finding
        self._runner: RuleRunner | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._failing = False
        self._age = 0.0
        self._thread = threading.Thread(target=self._run, name="smdebug-rules", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Evaluates the rules over what was published since the last look."""
        if self._lock.acquire(timeout=_PATIENCE):
            try:
                self._look()
            finally:
                self._lock.release()

    @property
    def must_end_first(self) -> bool:
        """Whether the rules have to end before the run is closed.

        Closing joins index files, those of an earlier job too.
        """
        return self._own_run.earlier

    def report(self) -> RuleReport | None:
        """What became of each rule so far; None before anything was published."""
        return None if self._runner is None else self._runner.report()

    def close(self) -> None:
        """Has the rules look at the rest of the run, which has been closed, and report.

        They do it on their own thread: one that takes for ever must not keep a script from ending.
        """
        self._ended.set()
        self._thread.join(_SAYS_SO)
        if self._thread.is_alive():
            logger.info("waiting for the rules, %g seconds at most", _PATIENCE)
            self._thread.join(_PATIENCE - _SAYS_SO)
        if self._thread.is_alive():
            logger.warning("the rules are still at work; what they have not looked at is left out")
        if self._rules.actions is not None:
            self._rules.actions.close()

    def _run(self) -> None:
        while not self._ended.wait(self._pause()):
            with self._lock:
                self._look()
        with self._lock:
            self._finish()

    def _finish(self) -> None:
        try:
            if self._runner is None:
                self._runner = self._open()
            if self._runner is not None:
                # Before they look: of a job that has ended they take what there is for all.
                self._wait_for_others(self._runner.trial)
                self._look()
                logger.info("%s", self._runner.finish())
        except Exception:
            logger.exception("the rules could not be evaluated to their end")

    @staticmethod
    def _wait_for_others(trial: Trial) -> None:
        """Waits until the other workers of the job have written their last steps, too."""
        # In a SageMaker job nothing says that it is over: what is there is judged.
        if trial.num_workers == 1 or environment.in_sagemaker():
            return
        deadline = time.monotonic() + _OTHERS_TAKE
        while not trial.loaded_all_steps and time.monotonic() < deadline:
            trial.refresh_data()
            threading.Event().wait(_SHORTEST_PAUSE)

    def _pause(self) -> float:
        """As long as the writer waits: there is nothing new before."""
        pause = flush_interval(self._age, self._own_run.remote, self._flush_seconds)
        pause = max(pause, _SHORTEST_PAUSE)
        self._age += pause
        return pause

    def _look(self) -> None:
        try:
            if self._runner is None:
                self._runner = self._open()
            _say([] if self._runner is None else self._runner.look())
            self._failing = False
        except Exception:
            # Training and saving go on; the next look may have more luck, as with a bucket.
            if not self._failing:
                logger.exception("the rules cannot be evaluated at present; training goes on")
            self._failing = True

    def _open(self) -> RuleRunner | None:
        from smdebug.exceptions import MissingCollectionFiles, TrialNotFound
        from smdebug.rules.runner import RuleRunner
        from smdebug.trials.trial import Trial

        try:
            trial = Trial(self._path, wait_seconds=0, store=self._own_run)
        except (TrialNotFound, MissingCollectionFiles):
            # Nothing has been published yet.
            return None
        rules = [spec.make(trial) for spec in self._rules.specs]
        return RuleRunner(trial, rules, self._found, own=True)

    def _found(self, finding: Finding) -> None:
        if self._rules.actions is not None:
            self._rules.actions.invoke(finding)
        self._tell(finding)


def _say(findings: list[Finding]) -> None:
    """Logs what was found; of what a rule found in many tensors, the first ones."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    for rule, found in by_rule.items():
        for finding in found[:_SAID]:
            logger.warning("%s", finding)
        if len(found) > _SAID:
            logger.warning("%s found %d more; the run keeps them", rule, len(found) - _SAID)
