"""What a hook saves because its rules need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyHook

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.config.json_config import parse_json_config
from smdebug.config.options import HookOptions
from smdebug.config.rule_requirements import DEFAULT_RULE_INTERVAL, TensorRequirement
from smdebug.config.save_config import SaveConfig
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError
from smdebug.hook.rules.rule_collections import add_rule_collections
from smdebug.mode_keys import ModeKeys
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path


def manager() -> CollectionManager:
    return CollectionManager([Collection("gradients", "^gradient"), Collection("losses", "loss")])


def test_unsaved_collection_is_saved_as_rules_require() -> None:
    collections = manager()
    needs = [
        TensorRequirement("gradients", ("abs_mean",)),
        TensorRequirement("gradients", ("l2", "abs_mean")),
    ]
    (fed,) = add_rule_collections(collections, needs, HookOptions())
    assert fed.collection is collections.get("gradients")
    config = fed.collection.reduction_config
    assert config is not None
    assert set(config.names) == {"abs_mean", "l2"}
    assert not config.save_raw_tensor
    assert fed.needs == tuple(needs)


def test_collections_of_the_user_are_not_changed_by_rules() -> None:
    collections = manager()
    options = HookOptions(include_collections=["gradients"])
    (fed,) = add_rule_collections(collections, [TensorRequirement("gradients", ("l2",))], options)
    assert fed.collection.name == "rules_gradients"
    assert fed.collection.include_regex == ["^gradient"]
    own = collections.get("gradients")
    assert (own.reduction_config, own.save_config) == (None, None)


def test_rule_collections_use_the_users_save_schedule_or_their_own() -> None:
    need = (
        TensorRequirement("losses", raw=True),
        TensorRequirement("gradients", ("l2",)),
        TensorRequirement("feature_importance"),
    )
    first, *others = add_rule_collections(manager(), need, HookOptions())
    assert first.collection.save_config == SaveConfig(save_interval=1)
    for other in others:
        assert other.collection.save_config == SaveConfig(save_interval=DEFAULT_RULE_INTERVAL)
    for fed in add_rule_collections(manager(), need, HookOptions(save_config={"save_interval": 7})):
        assert fed.collection.save_config is None
    described = parse_json_config({"LocalPath": "run"}).options
    assert add_rule_collections(manager(), need, described)[0].collection.save_config == SaveConfig(
        save_interval=1
    )


@pytest.mark.parametrize("given", [None, {"save_interval": 5, "start_step": 20}])
def test_requirement_for_the_first_steps_ends(given: Any) -> None:
    collections = manager()
    needs = [
        TensorRequirement("gradients", ("l2",)),
        TensorRequirement("gradients", raw=True, saves=3),
    ]
    plain, first = add_rule_collections(collections, needs, HookOptions(save_config=given))
    assert plain.collection.name == "gradients"
    assert first.collection.name == "rules_gradients_at_first"
    config = first.collection.save_config
    assert config is not None
    saved = [step for step in range(300) if config.should_save_step(ModeKeys.TRAIN, step)]
    assert saved == ([0, 10, 20] if given is None else [20, 25, 30])


def test_a_collection_made_for_a_rule_has_its_regexes() -> None:
    collections = manager()
    need = TensorRequirement("relu_output", raw=True, include_regex=(".*relu_output",))
    (fed,) = add_rule_collections(collections, [need, need], HookOptions())
    assert fed.collection.name == "relu_output"
    assert fed.collection.include_regex == [".*relu_output"]
    assert fed.collection.reduction_config is not None
    assert fed.collection.reduction_config.save_raw_tensor


def test_a_hook_saves_what_its_rules_need(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, rules=["VanishingGradient", "LossNotDecreasing"])
    gradient = np.array([1.0, -3.0])
    for step in range(21):
        hook.run(gradient__a=gradient, weight=np.ones(2), loss=np.float32(step))
    hook.close()
    trial = create_trial(str(tmp_path))
    assert trial.tensor_names() == ["gradient/a", "loss"]
    assert trial.tensor("loss").steps() == list(range(21))
    assert trial.tensor("gradient/a").steps() == [0, 10, 20]
    assert trial.tensor("gradient/a").reduction_values(0)["mean", True] == 2.0
    assert trial.tensor_names(collection="gradients") == ["gradient/a"]
    assert not list((tmp_path / "events").rglob("*.tfevents"))


def test_tensor_saved_by_user_and_rules_has_both_requests(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, rules="VanishingGradient", include_collections="gradients")
    for step in range(11):
        hook.run(gradient__a=np.array([1.0, -3.0, step]))
    hook.close()
    tensor = create_trial(str(tmp_path)).tensor("gradient/a")
    assert tensor.value(0).tolist() == [1.0, -3.0, 0.0]
    numbers = tensor.reduction_values(0)
    assert numbers == {("mean", True): pytest.approx(4 / 3), ("zeros", False): 1}
    # The user's schedule is every 500th step, that of the rules every 10th.
    assert list(tensor.values()) == [0]
    assert tensor.steps() == [0, 10]


@pytest.mark.parametrize(
    ("rules", "kind", "said"),
    [
        (["VanishingGradients"], SMDebugValueError, "VanishingGradient"),
        (["VanishingGradient:treshold=1"], SMDebugValueError, "threshold"),
        ([{"rule": "VanishingGradient", "threshold": "low"}], SMDebugValueError, "'low'"),
        ([{"threshold": 1}], SMDebugValueError, "'rule'"),
        ([3], SMDebugTypeError, "3"),
        (["nowhere.py:Mine"], SMDebugValueError, "nowhere.py"),
    ],
)
def test_invalid_rules_raise_when_the_hook_is_created(
    tmp_path: Path, rules: Any, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        NumpyHook(tmp_path, rules=rules)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options", [{"on_finding": "stop"}, {"before_update": True}, {"actions": "[]"}]
)
def test_options_that_need_rules_are_rejected_without_rules(tmp_path: Path, options: Any) -> None:
    with pytest.raises(SMDebugValueError, match="rules"):
        NumpyHook(tmp_path, **options)


def test_secrets_of_actions_are_not_in_the_error(tmp_path: Path) -> None:
    actions = [{"name": "webhook", "endpoint": "https://example.org/secret"}]
    with pytest.raises(SMDebugValueError, match="actions has no effect without rules") as refused:
        NumpyHook(tmp_path, actions=actions)
    assert "secret" not in str(refused.value)


def test_rules_in_one_string() -> None:
    options = HookOptions(rules="NonFinite, VanishingGradient:threshold=1e-6, x=2 ,LossSpike")
    assert options.rules == ("NonFinite", "VanishingGradient:threshold=1e-6, x=2", "LossSpike")
    assert HookOptions(rules={"rule": "NonFinite"}).rules == ({"rule": "NonFinite"},)


def test_before_update_is_rejected_where_unsupported(tmp_path: Path) -> None:
    with pytest.raises(SMDebugValueError, match="before_update must be False for NumPy"):
        NumpyHook(tmp_path, rules=["NonFinite"], before_update=True)
