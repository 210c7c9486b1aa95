"""The job file that feeds rules: it can be read, and a hook told so saves what they need."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from smdebug.config.collection import NON_REDUCTION_COLLECTIONS, Collection
from smdebug.config.json_config import JsonConfig, parse_json_config
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.rules import Rule, hook_configuration
from smdebug.rules.registry import BUILTIN_RULES, RuleSpec

# What built-in rules must be told.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "AllZero": {"tensor_regex": "relu,tanh"},
    "SimilarAcrossRuns": {"other_trial": "elsewhere"},
    "TensorVariance": {"collection_names": "weights", "max_threshold": "1"},
    "UnchangedTensor": {"collection_names": "losses", "tensor_regex": "loss"},
}


def given(name: str) -> dict[str, Any]:
    return {"rule": name, **ARGUMENTS.get(name, {})}


def needing(*needs: TensorRequirement) -> type[Rule]:
    """A rule with these needs."""

    class Needing(Rule):
        def needs(self) -> tuple[TensorRequirement, ...]:
            return needs

        def check(self, frame: Any) -> Any:
            return ()

    return Needing


def parsed(job: dict[str, Any]) -> JsonConfig:
    return parse_json_config(json.loads(json.dumps(job)))


def collections(job: dict[str, Any]) -> dict[str, Collection]:
    return {collection.name: collection for collection in parsed(job).collections}


def check(rules: list[Any], save_interval: int | None = None) -> None:
    """Asserts that the job file of rules saves everything they need."""
    job = hook_configuration(rules, save_interval)
    found = collections(job)
    needs = [need for rule in rules for need in RuleSpec(rule).needs()]
    assert set(found) == {need.collection for need in needs}
    assert len(job["CollectionConfigurations"]) == len(found)
    for need in needs:
        collection = found[need.collection]
        assert set(need.include_regex) <= set(collection.include_regex)
        reductions = collection.reduction_config
        if reductions is None:
            # The tensors themselves are saved: every reduction can be computed.
            continue
        names = {
            *reductions.reductions,
            *reductions.norms,
            *(f"abs_{name}" for name in (*reductions.abs_reductions, *reductions.abs_norms)),
        }
        assert set(need.reductions) <= names, need
        assert reductions.save_raw_tensor or not need.raw
        assert need.collection not in NON_REDUCTION_COLLECTIONS


@pytest.mark.parametrize("name", sorted(BUILTIN_RULES))
@pytest.mark.parametrize("save_interval", [None, 1, 7])
def test_the_job_file_of_every_built_in_rule_can_be_read(
    name: str, save_interval: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "smdebug.config"):
        check([given(name)], save_interval)
    assert not caplog.records


def test_the_job_file_of_all_built_in_rules_together_can_be_read() -> None:
    check([given(name) for name in BUILTIN_RULES])
    check([given(name) for name in BUILTIN_RULES], 3)


def test_aws_takes_texts_only() -> None:
    job = hook_configuration([given(name) for name in BUILTIN_RULES])
    for entry in job["CollectionConfigurations"]:
        for key, value in entry["CollectionParameters"].items():
            assert isinstance(value, str), (entry, key)


def test_schedules(caplog: pytest.LogCaptureFixture) -> None:
    found = collections(hook_configuration(["VanishingGradient"], 25))
    schedule = found["gradients"].save_config
    assert schedule is not None
    saved = [step for step in range(100) if schedule.should_save_step(ModeKeys.TRAIN, step)]
    assert saved == [0, 25, 50, 75]


def test_rules_that_share_a_collection_get_all_they_need() -> None:
    rules = [
        needing(TensorRequirement("weights", ("l2",), include_regex=("a",))),
        needing(TensorRequirement("weights", ("mean", "l2"), include_regex=("b", "a"))),
    ]
    (entry,) = hook_configuration(rules)["CollectionConfigurations"]
    assert entry["CollectionParameters"] == {
        "include_regex": "a,b",
        "reductions": "l2,mean",
        "save_interval": "10",
    }
    check(rules)


def test_a_tensor_itself_and_reductions_of_it() -> None:
    rules = [
        needing(TensorRequirement("weights", ("l2",))),
        needing(TensorRequirement("weights", raw=True)),
    ]
    reductions = collections(hook_configuration(rules))["weights"].reduction_config
    assert reductions is not None
    assert reductions.save_raw_tensor
    assert reductions.norms == ["l2"]
    alone = collections(hook_configuration(rules[1:]))["weights"]
    assert alone.reduction_config is None


def test_regexes_with_commas_stay_whole() -> None:
    rule = needing(TensorRequirement("mine", ("l2",), include_regex=("relu_\\d{1,2}", "tanh")))
    assert collections(hook_configuration([rule]))["mine"].include_regex == [
        "relu_\\d{1,2}",
        "tanh",
    ]


def test_only_the_first_saves_are_of_use() -> None:
    some, all_ = (
        TensorRequirement("mine", include_regex=("x",), saves=3),
        TensorRequirement("mine", include_regex=("x",)),
    )
    found = collections(hook_configuration([needing(some)], 10))["mine"].save_config
    assert found is not None
    saved = [step for step in range(100) if found.should_save_step(ModeKeys.TRAIN, step)]
    assert saved == [0, 10, 20]
    found = collections(hook_configuration([needing(some), needing(all_)], 10))["mine"].save_config
    assert found is not None
    assert found.should_save_step(ModeKeys.TRAIN, 90)


def test_no_rules_and_rules_without_needs() -> None:
    assert hook_configuration([]) == {"CollectionConfigurations": []}
    assert parsed(hook_configuration([needing()])).collections == ()


def test_one_rule_need_not_stand_in_a_list() -> None:
    assert hook_configuration("VanishingGradient") == hook_configuration(["VanishingGradient"])


@pytest.mark.parametrize("wrong", [0, -1, "often", 1.0e400, True, []])
def test_an_interval_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(SMDebugValueError, match="save_interval"):
        hook_configuration(["VanishingGradient"], wrong)


def test_rules_that_are_none_are_refused() -> None:
    with pytest.raises(SMDebugValueError, match="did you mean VanishingGradient"):
        hook_configuration(["VanishingGradiant"])
    with pytest.raises(SMDebugValueError, match="threshold"):
        hook_configuration(["VanishingGradient:threshold=x"])
