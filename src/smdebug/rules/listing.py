"""The rules that there are: what each is about, what it can be told, and whether it can begin."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import SMDebugTypeError, SMDebugValueError
from smdebug.rules.registry import BUILTIN_RULES, make_rule, rule_class, rule_names

if TYPE_CHECKING:
    from smdebug.rules.rule import Rule
    from smdebug.trials.trial import Trial

# Every rule has them, and they are no values of a command line.
_COMMON = ("action_str", "other_trials")
# It writes a page, which nobody gets without having asked for it.
_ONLY_WHEN_NAMED = ("CreateXgboostReport",)


@dataclass
class RuleInfo:
    """A rule, before there is a trial.

    Attributes:
        name: its name.
        about: one sentence.
        parameters: what it can be told, with the defaults.
        required: what it must be told.
    """

    name: str
    about: str
    parameters: dict[str, Any] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)


def list_rules() -> list[RuleInfo]:
    """Describes all rules that are installed, by name.

    Example:
        >>> {rule.name: rule.parameters for rule in list_rules()}["VanishingGradient"]["threshold"]
        1e-07
    """
    return [_described(name) for name in rule_names()]


def _described(name: str) -> RuleInfo:
    kind = rule_class(name)
    info = RuleInfo(name, (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " "))
    _, *known = inspect.signature(kind).parameters.values()
    for each in known:
        if each.name in _COMMON or each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
            continue
        if each.default is each.empty:
            info.required.append(each.name)
        else:
            info.parameters[each.name] = each.default
    return info


def default_rules(trial: Trial) -> tuple[list[Rule], dict[str, str]]:
    """The built-in rules that need not be told anything, and why the others were not made.

    A rule that writes a page is among neither.

    Example:
        >>> rules, others = default_rules(trial)  # doctest: +SKIP
        >>> others["SimilarAcrossRuns"]  # doctest: +SKIP
        'rule SimilarAcrossRuns must be told other_trial, got no parameters'
    """
    rules, others = [], {}
    for name in BUILTIN_RULES:
        if name in _ONLY_WHEN_NAMED:
            continue
        try:
            rules.append(make_rule(name, trial))
        except (SMDebugValueError, SMDebugTypeError) as error:
            others[name] = str(error)
    return rules, others
