"""The table of the gym: what each rule found where, and whether it should have."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from smdebug.rules.report import COULD_NOT_RUN, FAILED, FOUND, PASSED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdebug.storage.findings import Finding
    from smdebug.testing.faults.training import Fault, Training

DETECTED, SILENT = "detected", "nothing found"


@dataclass
class FaultRow:
    """What the rules found in a training with a fault.

    Attributes:
        fault: the fault.
        findings: what all rules found, by step.
        outcomes: what became of each rule, and why.
    """

    fault: Fault
    findings: list[Finding]
    outcomes: dict[str, tuple[str, str]]

    @property
    def detected(self) -> Finding | None:
        """The first thing that the rule meant for the fault found."""
        mine = [each for each in self.findings if each.rule == self.fault.rule_name]
        return min(mine, key=lambda each: each.step, default=None)

    @property
    def verdict(self) -> str:
        """`"detected"`, or what is wrong with what was found."""
        fault, found = self.fault, self.detected
        if found is None:
            status, message = self.outcomes.get(fault.rule_name, (PASSED, ""))
            return f"{status}: {message}" if message else "missed"
        if found.step < fault.step:
            return "false alarm before it was planted"
        if found.step > fault.step + fault.within:
            return f"late: expected by step {fault.step + fault.within}"
        if not re.search(fault.tensor, found.tensor or ""):
            return f"names {found.tensor}, not {fault.tensor}"
        return DETECTED

    @property
    def alarms(self) -> list[Finding]:
        """What was found before there was anything wrong."""
        return [each for each in self.findings if each.step < self.fault.step]

    @property
    def others(self) -> dict[str, int]:
        """Which other rules found something from the fault on, and at which step first."""
        steps: dict[str, int] = {}
        for finding in self.findings:
            if finding.rule != self.fault.rule_name and finding.step >= self.fault.step:
                steps[finding.rule] = min(finding.step, steps.get(finding.rule, finding.step))
        return steps


@dataclass
class HealthyRow:
    """What the rules found in a healthy training.

    Attributes:
        training: the training.
        findings: what all rules found, by step: false alarms.
        outcomes: what became of each rule, and why.
        has_learned: whether its loss went down as it should.
    """

    training: Training
    findings: list[Finding]
    outcomes: dict[str, tuple[str, str]]
    has_learned: bool

    @property
    def alarms(self) -> list[Finding]:
        """What was found and is not explained."""
        return [each for each in self.findings if each.rule not in self.training.explained]

    @property
    def verdict(self) -> str:
        """`"nothing found"`, or what was found."""
        failed = [rule for rule, (status, _) in self.outcomes.items() if status == FAILED]
        if failed:
            return f"failed: {', '.join(failed)}"
        if not self.has_learned:
            return "it did not learn, so it is not healthy"
        if self.alarms:
            return f"false alarm: {', '.join(dict.fromkeys(each.rule for each in self.alarms))}"
        return SILENT

    @property
    def explained(self) -> dict[str, str]:
        """The rules that found something for a reason that is known."""
        found = {each.rule for each in self.findings}
        return {rule: why for rule, why in self.training.explained.items() if rule in found}


@dataclass
class GymTable:
    """All rows; `print` shows them.

    Attributes:
        faults: one row per fault.
        healthy: one row per healthy training.
    """

    faults: list[FaultRow] = field(default_factory=list)
    healthy: list[HealthyRow] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether every fault was detected and nothing was found where nothing is wrong."""
        return all(row.verdict == DETECTED and not row.alarms for row in self.faults) and all(
            row.verdict == SILENT for row in self.healthy
        )

    def __str__(self) -> str:
        parts = []
        if self.faults:
            parts.append(self._shown_faults())
        if self.healthy:
            parts += [self._shown_healthy(), self._shown_rules()]
        return "\n\n".join(parts)

    def _shown_faults(self) -> str:
        rows = [["fault", "planted", "rule", "found", "tensor", "verdict"]]
        for row in self.faults:
            found, planted = row.detected, str(row.fault.step)
            step = "-" if found is None else str(found.step)
            tensor = (found.tensor if found is not None else None) or "-"
            rows.append([row.fault.name, planted, row.fault.rule_name, step, tensor, row.verdict])
        heading, *lines = aligned(rows)
        shown = [heading]
        for line, row in zip(lines, self.faults, strict=True):
            shown.append(line)
            if row.others:
                also = ", ".join(f"{rule} {step}" for rule, step in row.others.items())
                shown.append(f"    also found by {also}")
            for alarm in row.alarms:
                shown.append(f"    false alarm before it was planted: {alarm}")
            if row.fault.settings:
                shown.append(f"    not at its default settings: {row.fault.settings}")
        return "\n".join(shown)

    def _shown_healthy(self) -> str:
        rows = [["healthy training", "rules that ran", "verdict"]]
        for row in self.healthy:
            ran = sum(status != COULD_NOT_RUN for status, _ in row.outcomes.values())
            but = f"; explained below: {', '.join(row.explained)}" if row.explained else ""
            rows.append([row.training.name, str(ran), row.verdict + but])
        return "\n".join(aligned(rows))

    def _shown_rules(self) -> str:
        rows = [["rule", "ran on", "silent on", "false alarms"]]
        for name in sorted({rule for row in self.healthy for rule in row.outcomes}):
            words = [row.outcomes.get(name, (COULD_NOT_RUN, ""))[0] for row in self.healthy]
            loud = [row for row in self.healthy if any(f.rule == name for f in row.alarms)]
            alarms = [row.training.name for row in loud]
            ran = sum(word in (FOUND, PASSED) for word in words)
            rows.append([name, str(ran), str(words.count(PASSED)), "; ".join(alarms) or "none"])
        explained = [item for row in self.healthy for item in row.explained.items()]
        why = [f"{rule}: {reason}" for rule, reason in dict.fromkeys(explained)]
        return "\n".join([*aligned(rows), *(["", *why] if why else [])])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines in which the columns stand below each other."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines
