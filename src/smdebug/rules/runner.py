"""Many rules over one trial, in one pass: live, or over a run that has ended."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from smdebug.analysis.utils import no_refresh
from smdebug.config.options import rule_list
from smdebug.exceptions import (
    IndexReaderException,
    InsufficientInformationForRuleInvocation,
    NoMoreData,
    SMDebugValueError,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from smdebug.rules.registry import make_rule
from smdebug.rules.report import COULD_NOT_RUN, FAILED, FOUND, Outcome, RuleReport
from smdebug.rules.rule import Rule
from smdebug.rules.rule_frames import rule_frames
from smdebug.storage.findings import read_findings, write_findings, write_report
from smdebug.trials.create import create_trial
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from smdebug.rules.rule import Rule
    from smdebug.storage.findings import Finding

logger = logging.getLogger("smdebug.rules")

_SKIPPED = (StepUnavailable, NoMoreData, TensorUnavailable, TensorUnavailableForStep)
# How long a live trial is left alone before it is looked at again.
_PAUSE = 1.0


class RuleRunner:
    """Evaluates rules over a trial, every step once.

    Args:
        trial: the trial.
        rules: a list of names, `"Name:parameter=value"`, dicts, classes (see `make_rule`), or
            rules of this trial; one need not stand in a list.
        on_finding: called with everything that is found and not yet on record in the run.
        record: keep findings and outcomes in the run.
        own: the run is that of the job which evaluates the rules: what is on record was found in
            an earlier job, and is told again.
        tell: is told how many of the steps of a look are done; where rules take their time within
            a frame of steps, a part of its steps counts for each rule.

    Example:
        >>> runner = RuleRunner(trial, ["VanishingGradient"])  # doctest: +SKIP
        >>> runner.look()  # doctest: +SKIP
    """

    def __init__(
        self,
        trial: Trial,
        rules: Any,
        on_finding: Callable[[Finding], None] | None = None,
        record: bool = True,
        own: bool = False,
        tell: Callable[[int, int], None] | None = None,
    ) -> None:
        self.trial = trial
        self.rules: list[Rule] = [make_rule(rule, trial) for rule in rule_list(rules)]
        if not self.rules:
            raise SMDebugValueError("rules must name at least one rule, got none")
        for rule in self.rules:
            if rule.base_trial != trial:
                raise SMDebugValueError(
                    f"rules must be of the trial {trial.name}, got {rule.rule_name} of "
                    f"{rule.base_trial!r}"
                )
        self._on_finding = on_finding
        self._record = record
        self._tell_progress = tell
        self._outcomes = [
            Outcome(rule.rule_name, parameters=rule.rule_parameters) for rule in self.rules
        ]
        # A rule that was used before starts over, as this runner does.
        for rule in self.rules:
            rule.start_over()
        self._judged = -1
        self._recorded: set[Finding] | None = set() if own else None
        # Beside a long job, what has been judged must not stay in memory.
        self._lets_go = own and all(rule.by_frame and not rule.looks_back for rule in self.rules)

    @property
    def last_step(self) -> int:
        """The last global step that was looked at; -1 before the first."""
        return self._judged

    def look(self) -> list[Finding]:
        """Evaluates the rules over the steps that have come since the last look."""
        found: list[Finding] = []
        self.trial.maybe_refresh()
        with no_refresh(self.trial):
            reads = {name for rule in self.rules for name in rule.reads}
            done, total = 0, self._steps_to_come()
            for frame in rule_frames(self.trial, self._judged + 1, sorted(reads)):
                for place, rule in enumerate(self.rules):
                    found += self._caught(place, lambda: rule.evaluate(frame))  # noqa: B023
                    self._say(done + len(frame) * (place + 1) // len(self.rules), total)
                done += len(frame)
                self._judged = int(frame.steps[-1])
            if self._lets_go:
                self.trial.evict_until(self._judged)
        for place, rule in enumerate(self.rules):
            if not self.trial.loaded_all_steps:
                found += self._caught(place, lambda: rule.idle(time.time()))  # noqa: B023
        self._keep(found)
        return found

    def finish(self) -> RuleReport:
        """Looks for the last time, and says what became of each rule."""
        if self.trial.dynamic_refresh:
            # Also where looking is dear and was done a moment ago: what is missed now is lost.
            self.trial.refresh_data()
        found = self.look()
        rest: list[Finding] = []
        for place, rule in enumerate(self.rules):
            rest += self._caught(place, rule.finish)
            self._settle(place, rule)
            rule.close()
        self._keep(rest)
        report = self.report()
        if self._record:
            self._write(lambda: write_report(self.trial.store, report.to_dict()))
        logger.debug("%d findings in the last look", len(found) + len(rest))
        return report

    def report(self) -> RuleReport:
        """What became of each rule so far."""
        return RuleReport(self._outcomes, self.trial.name, self._judged)

    def leave_off(self) -> RuleReport:
        """Says what became of each rule so far, and ends it: the run is not looked at to its end.

        Nothing is put on record of that: another runner can begin anew.
        """
        for place, rule in enumerate(self.rules):
            self._settle(place, rule)
            rule.close()
        return self.report()

    def looks(
        self, follow: bool = True, stop: threading.Event | None = None
    ) -> Iterator[list[Finding]]:
        """Looks until the run has ended, and yields what each look has found.

        Args:
            follow: wait for steps to come while the job runs; False looks at what is there.
            stop: ends the looking early when it is set.
        """
        stop = stop or threading.Event()
        yield self.look()
        while follow and not self.trial.loaded_all_steps and not stop.wait(_PAUSE):
            yield self.look()

    def run(self, follow: bool = True, stop: threading.Event | None = None) -> RuleReport:
        """Evaluates the rules until the run has ended; the arguments are those of `looks`."""
        for _ in self.looks(follow, stop):
            pass
        return self.finish()

    # ---- inside

    def _steps_to_come(self) -> int:
        if self._tell_progress is None:
            return 0
        return sum(step > self._judged for step in self.trial.steps())

    def _say(self, done: int, total: int) -> None:
        if self._tell_progress is not None:
            self._tell_progress(done, total)

    def _caught(self, place: int, work: Callable[[], Iterable[Finding]]) -> list[Finding]:
        """What a rule finds; one that raises is out, and the others go on."""
        outcome, rule = self._outcomes[place], self.rules[place]
        if outcome.status in (COULD_NOT_RUN, FAILED):
            return []
        found: list[Finding] = []
        try:
            # One by one: what came before a failure stays.
            for finding in work():
                found.append(finding)
                if finding not in self._known():
                    self._tell(rule, finding)
        except InsufficientInformationForRuleInvocation as error:
            outcome.status, outcome.message = COULD_NOT_RUN, error.message
            logger.warning("%s", error)
        except Exception as error:
            outcome.status, outcome.message = FAILED, f"{type(error).__name__}: {error}"
            logger.exception("rule %s failed and is left out from now on", rule.rule_name)
        if found and outcome.status not in (COULD_NOT_RUN, FAILED):
            outcome.status = FOUND
        outcome.findings += found
        return found

    def _settle(self, place: int, rule: Rule) -> None:
        """A rule that had nothing to look at has not passed."""
        outcome = self._outcomes[place]
        missing = rule.missing()
        if missing and outcome.status not in (FAILED, FOUND, COULD_NOT_RUN):
            outcome.status, outcome.message = COULD_NOT_RUN, missing
            logger.warning("%s", InsufficientInformationForRuleInvocation(rule.rule_name, missing))

    def _keep(self, found: Sequence[Finding]) -> None:
        fresh = [finding for finding in found if finding not in self._known()]
        if self._record and fresh:
            self._write(lambda: write_findings(self.trial.store, fresh))
        self._known().update(fresh)

    def _write(self, write: Callable[[], object]) -> None:
        """Adds to the run; one that may only be read is judged all the same."""
        try:
            write()
        except Exception as error:
            logger.warning("%s does not keep what was found: %s", self.trial.store.url, error)

    def _known(self) -> set[Finding]:
        """What the run has on record; rules may have been run over it before.

        Nobody is told of it again: an action that was right then may now stop another job.
        """
        if self._recorded is None:
            try:
                self._recorded = set(read_findings(self.trial.store))
            except IndexReaderException as error:
                logger.warning("what was found before cannot be read: %s", error)
                self._recorded = set()
        return self._recorded

    def _tell(self, rule: Rule, finding: Finding) -> None:
        rule.act(finding)
        try:
            if self._on_finding is not None:
                self._on_finding(finding)
        except Exception:
            # Not the rule's fault: it goes on, and so do the others.
            logger.exception("on_finding failed; it was told: %s", finding)


def run_rules(
    trial: Trial | str | os.PathLike[str],
    rules: Any,
    *,
    follow: bool = True,
    record: bool = True,
    on_finding: Callable[[Finding], None] | None = None,
) -> RuleReport:
    """Evaluates rules over a run and says what became of each.

    Args:
        trial: the trial, or where it is.
        rules: names of rules, `"Name:parameter=value"`, dicts, classes; see `make_rule`.
        follow: wait for steps to come while the job runs.
        record: keep findings and outcomes in the run.
        on_finding: called with every finding that is not on record in the run.

    Example:
        >>> print(run_rules("/tmp/run", ["NonFinite", "LossSpike"]))  # doctest: +SKIP
    """
    opened = trial if isinstance(trial, Trial) else create_trial(trial)
    return RuleRunner(opened, rules, on_finding, record).run(follow)
