"""`tornasole.rules.rule` is `smdebug.rules.rule`."""

from smdebug.rules.rule import Rule

__all__ = ["Rule"]
