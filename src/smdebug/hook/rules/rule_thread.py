"""Rules over the run that a hook is writing, evaluated on a background thread.

This is the only module of the write side that uses the read side: rules and trials are imported
when a hook with rules is made.
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

    from smdebug.config.options import HookOptions
    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.hook.adapter import Adapter
    from smdebug.hook.rules.fresh_run_store import FreshRunStore
    from smdebug.rules.registry import RuleSpec
    from smdebug.rules.report import RuleReport
    from smdebug.rules.runner import RuleRunner
    from smdebug.storage.findings import Finding
    from smdebug.trials.trial import Trial

logger = logging.getLogger("smdebug.hook")

# The rules whose condition can be seen in gradients before they are used.
BEFORE_UPDATE_RULES = ("NonFinite", "ExplodingTensor")
# How many seconds the end of training waits for the rules, and after how many it logs that.
_CLOSE_SECONDS, _LOG_AFTER_SECONDS = 120.0, 5.0
# However often the writer publishes: evaluating takes time that training may need.
_MIN_PAUSE_SECONDS = 0.1
# How long other workers may take to close after this one.
_OTHER_WORKERS_SECONDS = 30.0
# How many findings of one rule are logged at a time.
_MAX_LOGGED = 3


class RuleSet:
    """The rules of a hook, checked when the hook is made, before there is a run.

    Args:
        given: the value of `HookOptions.rules`.
        actions: what to do about findings, as `Rule` takes it.

    Raises:
        SMDebugValueError: there is no such rule, or a parameter is invalid.
    """

    def __init__(self, given: Sequence[Any], actions: Any = None) -> None:
        from smdebug.rules.action.action import Actions
        from smdebug.rules.registry import RuleSpec

        self.specs: list[RuleSpec] = [RuleSpec(each) for each in given]
        self.needs: list[TensorRequirement] = [need for spec in self.specs for need in spec.needs()]
        self.actions = Actions(actions, "rules") if actions else None

    @classmethod
    def from_options(cls, options: HookOptions, adapter: type[Adapter]) -> RuleSet | None:
        """Return the rules of a hook; None when it has none.

        Raises:
            SMDebugValueError: the rules, or the framework, do not support `before_update`.
        """
        if not options.rules:
            return None
        rules = cls(options.rules, options.actions)
        if options.before_update:
            if not adapter.can_stop_before_update:
                adapter.refuse_before_update()
            rules.before_update_rule()
        return rules

    def before_update_rule(self) -> str:
        """Return the rule that stops the job before an optimizer uses bad gradients.

        Raises:
            SMDebugValueError: none of the rules is about non-finite values.
        """
        names = [spec.kind.__name__ for spec in self.specs]
        for name in names:
            if name in BEFORE_UPDATE_RULES:
                return name
        raise SMDebugValueError(
            f"before_update requires one of the rules {', '.join(BEFORE_UPDATE_RULES)}, "
            f"got rules={names}"
        )


class RuleThread:
    """Evaluates rules over a run while it is written.

    Args:
        rules: the rules.
        path: where the run is.
        store: the same, without what an earlier job has left there.
        on_finding: called with every finding, on the thread that evaluates the rules.
        flush_seconds: the option of the hook: how long a step may stay unpublished.
    """

    def __init__(
        self,
        rules: RuleSet,
        path: str,
        store: FreshRunStore,
        on_finding: Callable[[Finding], None],
        flush_seconds: float | None = None,
    ) -> None:
        self._rules = rules
        self._path = path
        self._store = store
        self._flush_seconds = flush_seconds
        self._on_finding = on_finding
        self._runner: RuleRunner | None = None
        # Held while rules are evaluated.
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._failing = False
        self._age = 0.0
        self._thread = threading.Thread(target=self._run, name="smdebug-rules", daemon=True)
        self._thread.start()

    def evaluate(self) -> None:
        """Evaluate the rules over what was published since the last time."""
        if not self._lock.acquire(timeout=_CLOSE_SECONDS):
            return
        try:
            if self._runner is None:
                self._runner = self._open()
            _log([] if self._runner is None else self._runner.look())
            self._failing = False
        except Exception:
            # Training and saving continue; the next attempt may succeed.
            if not self._failing:
                logger.exception("Cannot evaluate the rules at the moment; training continues")
            self._failing = True
        finally:
            self._lock.release()

    def report(self) -> RuleReport | None:
        """Return the state of each rule so far; None before anything was published."""
        return None if self._runner is None else self._runner.report()

    def close(self) -> None:
        """Evaluate the rest of the run, which has been closed, and report.

        The thread does that: a rule that never returns must not keep a script from ending.
        """
        self._closing.set()
        self._thread.join(_LOG_AFTER_SECONDS)
        if self._thread.is_alive():
            logger.info("Waiting for the rules, at most %g seconds", _CLOSE_SECONDS)
            self._thread.join(_CLOSE_SECONDS - _LOG_AFTER_SECONDS)
        if self._thread.is_alive():
            logger.warning("The rules are still running; the rest of the run is not evaluated")
        if self._rules.actions is not None:
            self._rules.actions.close()

    def _run(self) -> None:
        while not self._closing.wait(self._pause()):
            self.evaluate()
        try:
            with self._lock:
                if self._runner is None:
                    self._runner = self._open()
                if self._runner is not None:
                    # First: for a finished job the rules treat all saved steps as complete.
                    self._wait_for_other_workers(self._runner.trial)
                    self.evaluate()
                    logger.info("%s", self._runner.finish())
        except Exception:
            logger.exception("the rules could not be evaluated to their end")

    @staticmethod
    def _wait_for_other_workers(trial: Trial) -> None:
        """Wait until the other workers of the job have written their last steps, too."""
        # In a SageMaker job there is no end marker: the rules evaluate what there is.
        if trial.num_workers == 1 or environment.in_sagemaker():
            return
        deadline = time.monotonic() + _OTHER_WORKERS_SECONDS
        while not trial.loaded_all_steps and time.monotonic() < deadline:
            trial.refresh_data()
            threading.Event().wait(_MIN_PAUSE_SECONDS)

    def _pause(self) -> float:
        """Return the seconds until the writer publishes again."""
        pause = flush_interval(self._age, self._store.remote, self._flush_seconds)
        pause = max(pause, _MIN_PAUSE_SECONDS)
        self._age += pause
        return pause

    def _open(self) -> RuleRunner | None:
        from smdebug.exceptions import MissingCollectionFiles, TrialNotFound
        from smdebug.rules.runner import RuleRunner
        from smdebug.trials.trial import Trial

        try:
            trial = Trial(self._path, wait_seconds=0, store=self._store)
        except (TrialNotFound, MissingCollectionFiles):
            # Nothing has been published yet.
            return None
        rules = [spec.make(trial) for spec in self._rules.specs]
        return RuleRunner(trial, rules, self._handle, own=True)

    def _handle(self, finding: Finding) -> None:
        if self._rules.actions is not None:
            self._rules.actions.invoke(finding)
        self._on_finding(finding)


def _log(findings: list[Finding]) -> None:
    """Log findings; of those that one rule has in many tensors, the first ones."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    for rule, found in by_rule.items():
        for finding in found[:_MAX_LOGGED]:
            logger.warning("%s", finding)
        if len(found) > _MAX_LOGGED:
            logger.warning("%s found %d more; the run keeps them", rule, len(found) - _MAX_LOGGED)
