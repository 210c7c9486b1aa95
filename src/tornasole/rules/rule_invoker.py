"""`tornasole.rules.rule_invoker` is `smdebug.rules.rule_invoker`."""

from smdebug.rules.rule_invoker import invoke_rule

__all__ = ["invoke_rule"]
