"""Collections that change while training runs, and names of collections that are misspelt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.exceptions import InvalidCollectionConfiguration, SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVERY = smd.SaveConfig(save_interval=1)
CHANGES: dict[str, Callable[[Any, nn.Sequential], object]] = {
    "include": lambda kept, model: kept.include("2_output"),
    "include_regex": lambda kept, model: kept.include_regex.append("2_output"),
    "add": lambda kept, model: kept.add("2_output_0"),
    "add_module_tensors": lambda kept, model: kept.add_module_tensors(model[2]),
}


def make_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_change_of_a_kept_collection_takes_effect_at_the_next_step(
    tmp_path: Path, change: Callable[[Any, nn.Sequential], object]
) -> None:
    model = make_model()
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["mine"])
    kept = hook.get_collection("mine")
    kept.include("0_output")
    hook.register_module(model)
    for number in range(4):
        model(torch.ones(1, 2)).sum().backward()
        if number == 1:
            change(kept, model)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert {name: trial.tensor(name).steps() for name in trial.tensor_names()} == {
        "0_output_0": [0, 1, 2, 3],
        "2_output_0": [2, 3],
    }


def test_gradients_are_included_later(tmp_path: Path) -> None:
    model = make_model()
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["mine"])
    kept = hook.get_collection("mine")
    kept.include("0_output")
    hook.register_module(model)
    for number in range(3):
        model(torch.ones(1, 2)).sum().backward()
        if number == 0:
            kept.include("^gradient/Sequential_2.bias")
    hook.close()
    assert smd.create_trial(tmp_path).tensor("gradient/Sequential_2.bias").steps() == [1, 2]


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("gradient", "gradients"),
        ("weigths", "weights"),
        ("baises", "biases"),
        ("lossess", "losses"),
    ],
)
def test_misspelled_name_is_rejected_when_the_hook_is_created(
    tmp_path: Path, misspelt: str, meant: str
) -> None:
    with pytest.raises(SMDebugValueError, match=f"{misspelt}.*{meant}"):
        smd.Hook(tmp_path, include_collections=["weights", misspelt])


def test_older_name_of_biases_is_accepted(tmp_path: Path) -> None:
    assert "biases" in smd.Hook(tmp_path, include_collections=["bias"]).include_collections


def test_collection_prepared_before_the_hook_is_accepted(tmp_path: Path) -> None:
    smd.get_collection("weight").include("0_output")
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["weight"])
    hook.register_module(model := make_model())
    model(torch.ones(1, 2))
    hook.close()
    assert smd.create_trial(tmp_path).tensor_names() == ["0_output_0"]


def test_a_collection_may_get_its_tensors_later(tmp_path: Path) -> None:
    model = make_model()
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["mine"])
    hook.register_module(model)
    hook.get_collection("mine").add_module_tensors(model[0])
    model(torch.ones(1, 2))
    hook.close()
    assert smd.create_trial(tmp_path).tensor_names() == ["0_output_0"]


def test_a_collection_that_is_still_empty_is_rejected_at_the_first_step(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, include_collections=["attention"])
    hook.register_module(model := make_model())
    with pytest.raises(InvalidCollectionConfiguration, match="attention"):
        model(torch.ones(1, 2))
