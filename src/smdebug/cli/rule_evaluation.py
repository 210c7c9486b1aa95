"""Rules at work over a run, for the command line."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from smdebug.cli.follow import is_gone, say_gone
from smdebug.cli.render.rule_report import finding_line
from smdebug.cli.render.terminal import console, say
from smdebug.exceptions import InsufficientInformationForRuleInvocation
from smdebug.rules.listing import default_rules
from smdebug.rules.outcome import COULD_NOT_RUN, FAILED
from smdebug.rules.registry import make_rule

if TYPE_CHECKING:
    from smdebug.rules.outcome import RuleReport
    from smdebug.rules.rule import Rule
    from smdebug.rules.runner import RuleRunner
    from smdebug.storage.findings import Finding
    from smdebug.trials.trial import Trial


class Evaluation:
    """Rules at work.

    Attributes:
        stopped: whether the job was asked to stop.
        interrupted: whether somebody at the terminal had seen enough.
        shown: the findings that were shown as they came.
    """

    def __init__(self, runner: RuleRunner, stop: bool, live: bool) -> None:
        self._runner = runner
        self._stop = stop
        self._live = live
        self._out = console()
        self.stopped = self.interrupted = False
        self.shown: set[Finding] = set()

    def run(self, follow: bool) -> RuleReport:
        """Evaluates them, with `follow` until the job ends or Ctrl-C."""
        try:
            ended = threading.Event()
            for found in self._runner.looks(follow, ended):
                self._take(found)
                if follow and is_gone(self._runner.trial):
                    # What it has published since is looked at in the end.
                    ended.set()
                    say_gone(self._runner.trial)
            report = self._runner.finish()
            self._take(report.findings)
        except KeyboardInterrupt:
            self.interrupted = True
            return self._runner.leave_off()
        return report

    def _take(self, found: list[Finding]) -> None:
        for finding in found:
            if self._live and finding not in self.shown:
                self.shown.add(finding)
                self._out.print(finding_line(finding), soft_wrap=True)
        if found and self._stop:
            self._stop = False
            self._ask_to_stop(found[0])

    def _ask_to_stop(self, finding: Finding) -> None:
        trial = self._runner.trial
        if trial.loaded_all_steps:
            say("the job has ended: there is nothing to stop")
            return
        self.stopped = True
        trial.request_stop(str(finding), finding)
        say(f"the job was asked to stop: {finding}")


def make_rules(names: list[str] | None, trial: Trial) -> tuple[list[Rule], dict[str, str]]:
    """The rules to evaluate, and why others cannot be."""
    if not names:
        return default_rules(trial)
    return [make_rule(name, trial) for name in names], {}


def quiet_log() -> None:
    """Keeps out of the log what the table says: why rules cannot run."""
    logging.getLogger("smdebug.rules").addFilter(_not_about_needs)


def _not_about_needs(record: logging.LogRecord) -> bool:
    # Why a rule failed is in the table; where in its code is of no use there.
    record.exc_info = None
    said = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return not isinstance(said, InsufficientInformationForRuleInvocation)


def exit_code(report: RuleReport, named: bool, interrupted: bool) -> int:
    """The exit code of `smdebug rules`."""
    if interrupted:
        return 130
    if report.findings:
        return 1
    states = [outcome.status for outcome in report.outcomes]
    # What could not be looked at is not fine.
    unclear = any(named or state == FAILED for state in states if state in (COULD_NOT_RUN, FAILED))
    return 2 if unclear or all(state == COULD_NOT_RUN for state in states) else 0
