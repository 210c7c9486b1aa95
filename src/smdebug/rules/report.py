"""What became of each rule that was run over a trial."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smdebug.storage.findings import Finding

# The words for what can become of a rule, as they are stored.
FOUND, PASSED, COULD_NOT_RUN, FAILED = "found", "passed", "could not run", "failed"
_SHOWN_FINDINGS = 5


@dataclass
class Outcome:
    """What became of one rule.

    Attributes:
        rule: its name.
        status: `"found"`, `"passed"`, `"could not run"` (what it needs was not saved) or `"failed"`
            (it raised).
        message: why it could not run or failed.
        findings: what it found.
        parameters: what it was told.
    """

    rule: str
    status: str = PASSED
    message: str = ""
    findings: list[Finding] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them; findings are counted, they have files of their own."""
        return {
            "rule": self.rule,
            "status": self.status,
            "message": self.message,
            "findings": len(self.findings),
            "first_step": min((each.step for each in self.findings), default=None),
            "parameters": {name: _plain(value) for name, value in self.parameters.items()},
        }


@dataclass
class RuleReport:
    """What became of all rules; `print` shows it as a table.

    Attributes:
        outcomes: one per rule.
        trial: the name of the trial.
        last_step: the last global step that was looked at; -1 when there was none.

    Example:
        >>> print(RuleReport([Outcome("VanishingGradient")], "run", 99))
        run, up to step 99
        VanishingGradient  passed
    """

    outcomes: list[Outcome]
    trial: str = ""
    last_step: int = -1

    @property
    def findings(self) -> list[Finding]:
        """Everything that was found, by step."""
        found = [finding for outcome in self.outcomes for finding in outcome.findings]
        return sorted(found, key=lambda finding: finding.step)

    def __getitem__(self, rule: str) -> Outcome:
        """The outcome of a rule, by its name."""
        for outcome in self.outcomes:
            if outcome.rule == rule:
                return outcome
        raise KeyError(rule)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON can hold it."""
        outcomes = [outcome.to_dict() for outcome in self.outcomes]
        return {"trial": self.trial, "last_step": self.last_step, "rules": outcomes}

    def __str__(self) -> str:
        width = max((len(outcome.rule) for outcome in self.outcomes), default=0)
        lines = [f"{self.trial}, up to step {self.last_step}"]
        for outcome in self.outcomes:
            lines.append(f"{outcome.rule:<{width}}  {_said(outcome)}")
            for finding in outcome.findings[:_SHOWN_FINDINGS]:
                lines.append(f"{'':<{width}}  step {finding.step}: {finding.message}")
            more = len(outcome.findings) - _SHOWN_FINDINGS
            if more > 0:
                lines.append(f"{'':<{width}}  and {more} more")
        return "\n".join(lines)


def _said(outcome: Outcome) -> str:
    if outcome.status == FOUND:
        count = len(outcome.findings)
        return f"found {count} {'thing' if count == 1 else 'things'}"
    return f"{outcome.status}: {outcome.message}" if outcome.message else outcome.status


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
