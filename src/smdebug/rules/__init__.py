"""Rules: what went wrong in a run, in which tensor, at which step."""

from smdebug.config.rule_requirements import TensorRequirement as Need
from smdebug.rules.configuration import hook_configuration
from smdebug.rules.registry import make_rule, rule_class, rule_names
from smdebug.rules.report import Outcome, RuleReport
from smdebug.rules.required_tensors import RequiredTensors, RequiredTensorsForTrial
from smdebug.rules.rule import Rule
from smdebug.rules.rule_invoker import invoke_rule
from smdebug.rules.runner import RuleRunner, run_rules
from smdebug.storage.findings import Finding

# The base class of rules with `check` in earlier versions.
ColumnRule = Rule

__all__ = [
    "ColumnRule",
    "Finding",
    "Need",
    "Outcome",
    "RequiredTensors",
    "RequiredTensorsForTrial",
    "Rule",
    "RuleReport",
    "RuleRunner",
    "hook_configuration",
    "invoke_rule",
    "make_rule",
    "rule_class",
    "rule_names",
    "run_rules",
]
