"""`smdebug rules`: what went wrong in a run, while it is written or afterwards."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from smdebug.cli.follow import is_gone, say_gone
from smdebug.cli.open_run import open_run
from smdebug.cli.options import AsJson, Follow, help_text
from smdebug.cli.render.progress import Bar
from smdebug.cli.render.terminal import console, harmless, print_json, say
from smdebug.exceptions import InsufficientInformationForRuleInvocation, SMDebugValueError
from smdebug.rules.listing import default_rules, list_rules
from smdebug.rules.outcome import COULD_NOT_RUN, FAILED, FOUND, Outcome
from smdebug.rules.registry import make_rule
from smdebug.rules.runner import RuleRunner

if TYPE_CHECKING:
    from smdebug.rules.outcome import RuleReport
    from smdebug.rules.rule import Rule
    from smdebug.storage.findings import Finding
    from smdebug.trials.trial import Trial

_HELP = help_text(
    "Evaluates rules over a run, and says what they find.\n\n"
    "Without --rule all built-in rules are evaluated that can be, with their defaults. Ends with 1 "
    "when something was found, and with 2 when a rule that was named could not run.",
    "smdebug rules runs/one",
    "smdebug rules runs/one --rule NonFinite --rule LossSpike:factor=20",
    "smdebug rules s3://bucket/job/debug-output --follow --stop",
    "smdebug rules --list",
)
_MOST_SHOWN, _NARROWEST = 10, 20
_STYLES = {FOUND: "bold red", FAILED: "yellow", COULD_NOT_RUN: "dim"}


def rules(
    run: Annotated[
        str | None, typer.Argument(help="The run: a directory or a URL.", metavar="RUN")
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help="A rule: NAME, NAME:parameter=value,... or file.py:NAME; may be repeated.",
            metavar="RULE",
        ),
    ] = None,
    follow: Follow = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Ask the job to stop when something is found.")
    ] = False,
    no_record: Annotated[
        bool, typer.Option("--no-record", help="Do not keep what is found in the run.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show all findings, and why rules could not run.")
    ] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="Show the rules that there are; needs no RUN.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    # The help is that of _HELP; a docstring here would be shown in its place.
    if listing:
        _list(as_json)
        return
    if run is None:
        raise SMDebugValueError("RUN must be a directory or a URL, got none")
    trial = open_run(run)
    # Said in the table, not line by line beside it.
    logging.getLogger("smdebug.rules").addFilter(_not_about_needs)
    made, others = _made(rule, trial)
    with Bar(clock=not follow) as progress:
        runner = RuleRunner(trial, made, record=not no_record, tell=progress.tell)
        evaluation = _Evaluation(runner, stop, live=follow and not as_json)
        report = evaluation.run(follow)
    report.outcomes += [Outcome(name, COULD_NOT_RUN, why) for name, why in others.items()]
    if as_json:
        _print(report, run, evaluation)
    else:
        _show(report, bool(rule), everything, evaluation.shown)
    raise typer.Exit(_exit_code(report, bool(rule), evaluation.interrupted))


rules.__doc__ = _HELP


class _Evaluation:
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
                self._out.print(_line(finding), soft_wrap=True)
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


def _made(names: list[str] | None, trial: Trial) -> tuple[list[Rule], dict[str, str]]:
    """The rules to evaluate, and why others cannot be."""
    if not names:
        return default_rules(trial)
    return [make_rule(name, trial) for name in names], {}


def _not_about_needs(record: logging.LogRecord) -> bool:
    # Why a rule failed is in the table; where in its code is of no use there.
    record.exc_info = None
    said = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return not isinstance(said, InsufficientInformationForRuleInvocation)


def _exit_code(report: RuleReport, named: bool, interrupted: bool) -> int:
    if interrupted:
        return 130
    if report.findings:
        return 1
    states = [outcome.status for outcome in report.outcomes]
    # What could not be looked at is not fine.
    unclear = any(named or state == FAILED for state in states if state in (COULD_NOT_RUN, FAILED))
    return 2 if unclear or all(state == COULD_NOT_RUN for state in states) else 0


# ---- what is shown


def _show(report: RuleReport, named: bool, everything: bool, shown: set[Finding]) -> None:
    out = console()
    # Rules that nobody has asked for by name need not be told of one by one.
    idle = [] if named else [each for each in report.outcomes if each.status == COULD_NOT_RUN]
    table = _table(report, [each for each in report.outcomes if each not in idle])
    if table.row_count:
        out.print(table)
    lines = []
    for outcome in report.outcomes:
        findings = [each for each in outcome.findings if each not in shown]
        lines += findings if everything else findings[:_MOST_SHOWN]
    if table.row_count and lines:
        out.print()
    for finding in sorted(lines, key=lambda each: each.step):
        out.print(_line(finding), soft_wrap=True)
    more = len(report.findings) - len(shown) - len(lines)
    if more > 0:
        out.print(Text(f"... and {more} more (--all)", "dim"))
    _show_idle(idle, everything)


def _show_idle(idle: list[Outcome], everything: bool) -> None:
    if not idle:
        return
    out = console()
    plural = "rule" if len(idle) == 1 else "rules"
    if not everything:
        names = harmless(", ".join(outcome.rule for outcome in idle))
        out.print(Text(f"{len(idle)} {plural} could not run (--all says why): {names}", "dim"))
        return
    out.print(Text(f"{len(idle)} {plural} could not run", "dim"))
    for outcome in idle:
        why = Text.assemble((harmless(outcome.rule), "bold"), "  ", harmless(outcome.message))
        out.print(why, soft_wrap=True)


def _table(report: RuleReport, outcomes: list[Outcome]) -> Table:
    where = f"{report.trial}, up to step {report.last_step}"
    table = Table(title=Text(harmless(where)), title_justify="left", box=None, pad_edge=False)
    for name in ("rule", "status", "findings", "first step", "what"):
        right = name in ("findings", "first step")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "what")
    # A finding stands below in full; here it takes the rest of the line.
    taken = max((len(each.rule) + len(each.status) for each in outcomes), default=0)
    rest = max(console().width - taken - len("findings  first step") - 8, _NARROWEST)
    for outcome in sorted(outcomes, key=lambda each: each.status != FOUND):
        first = min(outcome.findings, key=lambda finding: finding.step, default=None)
        what = Text(harmless(outcome.message if first is None else first.message))
        if first is not None:
            what.truncate(rest, overflow="ellipsis")
        table.add_row(
            Text(harmless(outcome.rule)),
            Text(outcome.status, _STYLES.get(outcome.status, "green")),
            "" if first is None else str(len(outcome.findings)),
            "" if first is None else str(first.step),
            what,
        )
    return table


def _line(finding: Finding) -> Text:
    return Text.assemble(
        (f"step {finding.step}", "bold"), "  ", (harmless(finding.rule), "red"), "  ",
        harmless(finding.message),
    )  # fmt: skip


def _print(report: RuleReport, run: str, evaluation: _Evaluation) -> None:
    findings = [finding.to_dict() for finding in report.findings]
    state = {"stopped": evaluation.stopped, "interrupted": evaluation.interrupted}
    print_json({"run": run, **report.to_dict(), **state, "found": findings})


def _list(as_json: bool) -> None:
    known = list_rules()
    if as_json:
        print_json([vars(rule) for rule in known])
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("rule", no_wrap=True)
    table.add_column("about", ratio=3)
    # A default that is cut could not be given back.
    table.add_column("parameters", ratio=2, overflow="fold")
    for rule in known:
        told: list[str] = [*rule.required, *(_parameter(*pair) for pair in rule.parameters.items())]
        table.add_row(
            Text(harmless(rule.name)), Text(harmless(rule.about)), Text(harmless(", ".join(told)))
        )
    console().print(table)


def _parameter(name: str, default: Any) -> str:
    return name if default is None or default == "" else f"{name}={default}"
