"""Collections that change while training runs, and names of collections that are misspelt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyHook

from smdebug import ReductionConfig, SaveConfig
from smdebug.exceptions import InvalidCollectionConfiguration, SMDebugValueError
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVERY = SaveConfig(save_interval=1)


def make_hook(tmp_path: Path, **options: Any) -> NumpyHook:
    options = {"save_config": EVERY, "include_collections": ["mine"], **options}
    return NumpyHook(tmp_path / "run", **options)


def make_step(hook: NumpyHook) -> None:
    hook.run(first=np.ones(2), second=np.full(2, 3.0))


# ---- a collection that the user has kept

CHANGES: dict[str, tuple[Callable[[Any], object], dict[str, list[int]]]] = {
    "include": (lambda kept: kept.include("second"), {"first": [0, 1, 2, 3], "second": [2, 3]}),
    "include_regex": (
        lambda kept: kept.include_regex.append("second"),
        {"first": [0, 1, 2, 3], "second": [2, 3]},
    ),
    "add": (lambda kept: kept.add("second"), {"first": [0, 1, 2, 3], "second": [2, 3]}),
    "tensor_names": (
        lambda kept: kept.tensor_names.add("second"),
        {"first": [0, 1, 2, 3], "second": [2, 3]},
    ),
    "exclude": (lambda kept: kept.exclude("first"), {"first": [0, 1]}),
    "save_config": (
        lambda kept: setattr(kept, "save_config", SaveConfig(save_interval=3)),
        {"first": [0, 1, 3]},
    ),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=list(CHANGES))
def test_a_change_takes_effect_at_the_next_step(
    tmp_path: Path, change: Callable[[Any], object], expected: dict[str, list[int]]
) -> None:
    hook = make_hook(tmp_path)
    kept = hook.get_collection("mine")
    kept.include("first")
    for number in range(4):
        make_step(hook)
        if number == 1:
            change(kept)
    hook.close()
    trial = create_trial(hook.out_dir)
    assert {name: trial.tensor(name).steps() for name in trial.tensor_names()} == expected


def test_other_reductions_take_effect_at_the_next_step(tmp_path: Path) -> None:
    hook = make_hook(tmp_path)
    kept = hook.get_collection("mine")
    kept.include("first")
    make_step(hook)
    kept.reduction_config = ReductionConfig(["max"])
    make_step(hook)
    hook.close()
    tensor = create_trial(hook.out_dir).tensor("first")
    assert list(tensor.values()) == [0]
    assert tensor.reduction_values(0) == {}
    assert tensor.reduction_values(1) == {("max", False): 1.0}


def test_change_of_a_default_collection_takes_effect(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, include_collections=["weights"])
    kept = hook.get_collections()["weights"]
    make_step(hook)
    kept.include("second")
    make_step(hook)
    hook.close()
    assert create_trial(hook.out_dir).tensor("second").steps() == [1]


# ---- misspelt names


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("gradient", "gradients"),
        ("weigths", "weights"),
        ("Weights", "weights"),
        ("loses", "losses"),
    ],
)
@pytest.mark.parametrize("others", [[], ["weights", "mine"]], ids=["alone", "among others"])
def test_misspelled_name_is_rejected_when_the_hook_is_created(
    tmp_path: Path, misspelt: str, meant: str, others: list[str]
) -> None:
    with pytest.raises(SMDebugValueError, match=f"{misspelt}.*{meant}"):
        make_hook(tmp_path, include_collections=[*others, misspelt])
    assert not (tmp_path / "run").exists()


def test_misspelled_name_in_the_json_config_is_rejected(tmp_path: Path) -> None:
    config = {
        "LocalPath": str(tmp_path / "run"),
        "CollectionConfigurations": [{"CollectionName": "gradient"}],
    }
    with pytest.raises(SMDebugValueError, match=r"gradient.*gradients"):
        NumpyHook.create_from_json_file(config)


def test_similar_name_with_its_own_regex_is_accepted(tmp_path: Path) -> None:
    named = {"CollectionName": "weight", "CollectionParameters": {"include_regex": "second"}}
    config = {
        "LocalPath": str(tmp_path / "run"),
        "HookParameters": {"save_interval": 1},
        "CollectionConfigurations": [named],
    }
    hook = NumpyHook.create_from_json_file(config)
    make_step(hook)
    hook.close()
    assert create_trial(hook.out_dir).tensor_names(collection="weight") == ["second"]


@pytest.mark.parametrize("name", ["mine", "relu", "attention"])
def test_a_collection_may_get_its_regex_later(tmp_path: Path, name: str) -> None:
    hook = make_hook(tmp_path, include_collections=[name])
    hook.get_collection(name).include("second")
    make_step(hook)
    hook.close()
    assert create_trial(hook.out_dir).tensor_names() == ["second"]


def test_a_collection_that_is_still_empty_is_refused_at_the_first_step(tmp_path: Path) -> None:
    hook = make_hook(tmp_path, include_collections=["attention"])
    with pytest.raises(InvalidCollectionConfiguration, match="attention"):
        make_step(hook)
