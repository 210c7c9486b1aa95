"""Evaluate rules over a run for `smdebug rules`."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from smdebug.cli.follow import report_gone_writer, writer_is_gone
from smdebug.cli.render.rule_report import format_finding
from smdebug.cli.render.terminal import console, print_message
from smdebug.exceptions import InsufficientInformationForRuleInvocation
from smdebug.rules.listing import default_rules
from smdebug.rules.registry import make_rule
from smdebug.rules.report import COULD_NOT_RUN, FAILED

if TYPE_CHECKING:
    from smdebug.rules.report import RuleReport
    from smdebug.rules.rule import Rule
    from smdebug.rules.runner import RuleRunner
    from smdebug.storage.findings import Finding
    from smdebug.trials.trial import Trial


class Evaluation:
    """An evaluation of rules, with findings printed as they come.

    Attributes:
        stopped: whether the job was asked to stop.
        interrupted: whether it ended by Ctrl-C.
        shown: the findings that were printed.
    """

    def __init__(self, runner: RuleRunner, stop: bool, live: bool) -> None:
        self._runner = runner
        self._stop = stop
        self._live = live
        self._out = console()
        self.stopped = self.interrupted = False
        self.shown: set[Finding] = set()

    def run(self, follow: bool) -> RuleReport:
        """Evaluate the rules; with `follow` until the job ends or Ctrl-C."""
        try:
            ended = threading.Event()
            for found in self._runner.looks(follow, ended):
                self._handle(found)
                if follow and writer_is_gone(self._runner.trial):
                    # `finish` reads what it published since.
                    ended.set()
                    report_gone_writer(self._runner.trial)
            report = self._runner.finish()
            self._handle(report.findings)
        except KeyboardInterrupt:
            self.interrupted = True
            return self._runner.leave_off()
        return report

    def _handle(self, found: list[Finding]) -> None:
        for finding in found:
            if self._live and finding not in self.shown:
                self.shown.add(finding)
                self._out.print(format_finding(finding), soft_wrap=True)
        if found and self._stop:
            self._stop = False
            self._ask_to_stop(found[0])

    def _ask_to_stop(self, finding: Finding) -> None:
        trial = self._runner.trial
        if trial.loaded_all_steps:
            print_message("the job has already ended: nothing to stop")
            return
        self.stopped = True
        trial.request_stop(str(finding), finding)
        print_message(f"asked the job to stop: {finding}")


def make_rules(names: list[str] | None, trial: Trial) -> tuple[list[Rule], dict[str, str]]:
    """Return the rules to evaluate, and the reasons why others cannot run."""
    if not names:
        return default_rules(trial)
    return [make_rule(name, trial) for name in names], {}


def quiet_log() -> None:
    """Keep the reasons why rules cannot run out of the log: the table has them."""
    logging.getLogger("smdebug.rules").addFilter(_is_not_missing_tensors)


def _is_not_missing_tensors(record: logging.LogRecord) -> bool:
    # The table has the message; a traceback would interrupt it.
    record.exc_info = None
    error = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return not isinstance(error, InsufficientInformationForRuleInvocation)


def exit_code(report: RuleReport, named: bool, interrupted: bool) -> int:
    """Return the exit status of `smdebug rules`."""
    if interrupted:
        return 130
    if report.findings:
        return 1
    states = [outcome.status for outcome in report.outcomes]
    # A rule that could not run has not passed.
    unclear = any(named or state == FAILED for state in states if state in (COULD_NOT_RUN, FAILED))
    return 2 if unclear or all(state == COULD_NOT_RUN for state in states) else 0
