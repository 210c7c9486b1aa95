"""The rules that there are, and which of them can begin without being told anything."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from smdebug.rules.listing import default_rules, list_rules
from smdebug.rules.registry import BUILTIN_RULES, rule_class, rule_names
from smdebug.testing import make_run
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path


def test_every_rule_with_its_parameters() -> None:
    listed = {rule.name: rule for rule in list_rules()}
    assert list(listed) == rule_names()
    for name, rule in listed.items():
        known = inspect.signature(rule_class(name)).parameters
        told = [*rule.required, *rule.parameters]
        assert set(told) == set(known) - {"base_trial", "action_str", "other_trials"}
        assert all(known[each].default == default for each, default in rule.parameters.items())
        doc = " ".join((rule_class(name).__doc__ or "").split())
        assert rule.about.endswith(".")
        assert doc.startswith(rule.about)


def test_rules_that_need_not_be_told(tmp_path: Path) -> None:
    make_run(tmp_path)
    rules, others = default_rules(create_trial(str(tmp_path)))
    made = {rule.rule_name for rule in rules}
    assert made | set(others) == set(BUILTIN_RULES) - {"CreateXgboostReport"}
    assert not made & set(others)
    assert set(others) == {"AllZero", "SimilarAcrossRuns", "TensorVariance", "UnchangedTensor"}
    assert all("must be told" in why for why in others.values())
