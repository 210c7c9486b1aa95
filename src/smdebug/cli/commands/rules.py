"""`smdebug rules`: what went wrong in a run, while it is written or afterwards."""

from __future__ import annotations

from typing import Annotated

import typer

from smdebug.cli.options import AsJson, Follow, help_text
from smdebug.exceptions import SMDebugValueError


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
    # The help is that below; a docstring here would be shown in its place.
    from smdebug.cli.open_run import open_run
    from smdebug.cli.render.progress import Bar
    from smdebug.cli.render.rule_report import print_report, print_rules
    from smdebug.cli.render.terminal import print_json
    from smdebug.cli.rule_evaluation import Evaluation, exit_code, make_rules, quiet_log
    from smdebug.rules.listing import list_rules
    from smdebug.rules.outcome import COULD_NOT_RUN, Outcome
    from smdebug.rules.runner import RuleRunner

    if listing and as_json:
        print_json([vars(rule) for rule in list_rules()])
        return
    if listing:
        print_rules(list_rules())
        return
    if run is None:
        raise SMDebugValueError("RUN must be a directory or a URL, got none")
    trial = open_run(run)
    quiet_log()
    made, others = make_rules(rule, trial)
    with Bar(clock=not follow) as progress:
        runner = RuleRunner(trial, made, record=not no_record, tell=progress.tell)
        evaluation = Evaluation(runner, stop, live=follow and not as_json)
        report = evaluation.run(follow)
    report.outcomes += [Outcome(name, COULD_NOT_RUN, why) for name, why in others.items()]
    if as_json:
        findings = [finding.to_dict() for finding in report.findings]
        state = {"stopped": evaluation.stopped, "interrupted": evaluation.interrupted}
        print_json({"run": run, **report.to_dict(), **state, "found": findings})
    else:
        print_report(report, bool(rule), everything, evaluation.shown)
    raise typer.Exit(exit_code(report, bool(rule), evaluation.interrupted))


rules.__doc__ = help_text(
    "Evaluates rules over a run, and says what they find.\n\n"
    "Without --rule all built-in rules are evaluated that can be, with their defaults. Ends with 1 "
    "when something was found, and with 2 when a rule that was named could not run.",
    "smdebug rules runs/one",
    "smdebug rules runs/one --rule NonFinite --rule LossSpike:factor=20",
    "smdebug rules s3://bucket/job/debug-output --follow --stop",
    "smdebug rules --list",
)
