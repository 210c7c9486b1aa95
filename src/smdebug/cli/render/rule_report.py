"""Tables of findings and of available rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from smdebug.cli.render.terminal import console, harmless
from smdebug.rules.report import COULD_NOT_RUN, FAILED, FOUND, Outcome

if TYPE_CHECKING:
    from smdebug.rules.listing import RuleInfo
    from smdebug.rules.report import RuleReport
    from smdebug.storage.findings import Finding

_MOST_SHOWN, _NARROWEST = 10, 20
_STYLES = {FOUND: "bold red", FAILED: "yellow", COULD_NOT_RUN: "dim"}


def print_report(report: RuleReport, named: bool, everything: bool, shown: set[Finding]) -> None:
    """Print the outcomes and findings of rules.

    Args:
        report: the outcomes.
        named: rules were named on the command line: each that could not run has a row.
        everything: print all findings, and why rules could not run.
        shown: findings that are already printed.
    """
    out = console()
    # One line for all default rules that could not run.
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
        out.print(format_finding(finding), soft_wrap=True)
    more = len(report.findings) - len(shown) - len(lines)
    if more > 0:
        out.print(Text(f"... and {more} more (--all)", "dim"))
    _print_idle(idle, everything)


def _print_idle(idle: list[Outcome], everything: bool) -> None:
    if not idle:
        return
    out = console()
    plural = "rule" if len(idle) == 1 else "rules"
    if not everything:
        names = harmless(", ".join(outcome.rule for outcome in idle))
        out.print(Text(f"{len(idle)} {plural} could not run (--all shows why): {names}", "dim"))
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
    # Cut to one line: the finding is printed in full below.
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


def format_finding(finding: Finding) -> Text:
    """Return a finding as one line."""
    return Text.assemble(
        (f"step {finding.step}", "bold"), "  ", (harmless(finding.rule), "red"), "  ",
        harmless(finding.message),
    )  # fmt: skip


def print_rules(known: list[RuleInfo]) -> None:
    """Print the available rules with their parameters."""
    table = Table(box=None, pad_edge=False)
    table.add_column("rule", no_wrap=True)
    table.add_column("about", ratio=3)
    # Folded, not cut: defaults are copied from here.
    table.add_column("parameters", ratio=2, overflow="fold")
    for rule in known:
        parameters: list[str] = [
            *rule.required,
            *(_parameter(*pair) for pair in rule.parameters.items()),
        ]
        table.add_row(
            Text(harmless(rule.name)),
            Text(harmless(rule.about)),
            Text(harmless(", ".join(parameters))),
        )
    console().print(table)


def _parameter(name: str, default: Any) -> str:
    return name if default is None or default == "" else f"{name}={default}"
