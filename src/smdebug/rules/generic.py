"""The built-in rules by the path they had in early releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.rules.registry import BUILTIN_RULES, rule_class

if TYPE_CHECKING:
    from smdebug.rules.rule import Rule

__all__ = sorted(BUILTIN_RULES)


def __getattr__(name: str) -> type[Rule]:
    # Late: one rule is imported, not all of them.
    if name in BUILTIN_RULES:
        return rule_class(name)
    raise AttributeError(f"module 'smdebug.rules.generic' has no attribute {name!r}")
