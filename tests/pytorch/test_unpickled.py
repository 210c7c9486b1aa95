"""A hook that was pickled and unpickled answers every call harmlessly and saves nothing."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.hook.unpickled import CALLS as CALLS_OF_ALL
from tests.hook.unpickled import public_names, unpickled, unreadable
from torch import nn

import smdebug.pytorch as smd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def begin_step(hook: Any) -> None:
    model = nn.Linear(2, 2)
    hook.register_module(model, begins_steps=False)
    hook.begin_step(model)


def train(hook: Any) -> None:
    model, loss = nn.Linear(2, 2), nn.MSELoss()
    hook.register_hook(model)
    hook.register_hook(loss)
    loss(model(torch.ones(1, 2)), torch.zeros(1, 2)).backward()


CALLS: dict[str, Callable[[Any], object]] = {
    **CALLS_OF_ALL,
    "save_tensor of a tensor": lambda hook: hook.save_tensor("late", torch.ones(2), "mine"),
    "register_module": lambda hook: hook.register_module(nn.Linear(2, 2)).remove(),
    "register_loss": lambda hook: hook.register_loss(nn.MSELoss()).remove(),
    "register_hook": train,
    "begin_step": begin_step,
    "record_tensor_value": lambda hook: hook.record_tensor_value("late", torch.ones(2)),
    "loss_computed": lambda hook: hook.loss_computed(
        nn.MSELoss(), (torch.ones(1), torch.ones(1)), {}, torch.zeros(())
    ),
}


@pytest.fixture
def model() -> nn.Module:
    return nn.Linear(2, 2)


@pytest.fixture
def hook(tmp_path: Path, model: nn.Module) -> smd.Hook:
    """A hook in the middle of a run."""
    hook = smd.Hook(
        tmp_path, save_config=smd.SaveConfig(save_interval=1), include_collections=["gradients"]
    )
    hook.register_module(model)
    model(torch.ones(1, 2)).sum().backward()
    return hook


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_every_call_of_an_unpickled_hook_is_safe(
    hook: smd.Hook, call: Callable[[Any], object]
) -> None:
    call(unpickled(hook))


def test_every_method_is_called_here(hook: smd.Hook) -> None:
    found = {name: getattr(hook, name) for name in public_names(hook)}
    methods = {name for name, each in found.items() if callable(each) and type(each) is not type}
    called = {name.partition(" ")[0] for name in CALLS}
    assert methods - called == {"create_from_json_file"}


def test_every_attribute_can_be_read(hook: smd.Hook) -> None:
    assert unreadable(hook) == []


def test_it_saves_nothing_and_leaves_the_run_of_its_original_alone(
    hook: smd.Hook, model: nn.Module, tmp_path: Path
) -> None:
    other, copied = pickle.loads(pickle.dumps((hook, model)))
    for call in CALLS.values():
        call(other)
    copied(torch.ones(1, 2)).sum().backward()
    other.close()
    assert not hook.closed
    model(torch.ones(1, 2)).sum().backward()
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor_names() == ["gradient/Linear_bias", "gradient/Linear_weight"]
    assert trial.steps() == [0, 1]
