"""`smdebug rules`: evaluate rules over a run, during training or afterwards."""

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
        bool, typer.Option("--stop", help="Ask the job to stop at the first finding.")
    ] = False,
    no_record: Annotated[
        bool, typer.Option("--no-record", help="Do not save findings in the run.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show all findings, and why rules could not run.")
    ] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="List the available rules; needs no RUN.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    # The help is below; a docstring here would replace it.
    from smdebug.cli.open_run import open_run
    from smdebug.cli.render.progress import Bar
    from smdebug.cli.render.rule_report import print_report, print_rules
    from smdebug.cli.render.terminal import print_json
    from smdebug.cli.rule_evaluation import Evaluation, exit_code, make_rules, quiet_log
    from smdebug.rules.listing import list_rules
    from smdebug.rules.report import COULD_NOT_RUN, Outcome
    from smdebug.rules.runner import RuleRunner

    if listing and as_json:
        print_json([vars(rule) for rule in list_rules()])
        return
    if listing:
        print_rules(list_rules())
        return
    if run is None:
        raise SMDebugValueError("RUN is required: a directory or a URL")
    trial = open_run(run)
    quiet_log()
    made, others = make_rules(rule, trial)
    with Bar(timer=not follow) as progress:
        runner = RuleRunner(trial, made, record=not no_record, tell=progress.update)
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
    "Evaluate rules over a run and print their findings.\n\n"
    "Without --rule, all built-in rules that can run are evaluated with their defaults. Exits with "
    "status 1 if there are findings, and with 2 if a rule that was named could not run.",
    "smdebug rules runs/one",
    "smdebug rules runs/one --rule NonFinite --rule LossSpike:factor=20",
    "smdebug rules s3://bucket/job/debug-output --follow --stop",
    "smdebug rules --list",
)
