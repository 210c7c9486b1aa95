"""A gradient that is delivered twice in one step: two backward passes through one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

import smdebug.pytorch as smd

if TYPE_CHECKING:
    from pathlib import Path

PASSES = pytest.mark.parametrize("passes", [1, 2, 3])
RAW = pytest.mark.parametrize("names", [[], ["mean", "max"]], ids=["raw", "reductions"])


def train(path: Path, passes: int, names: list[str]) -> dict[str, torch.Tensor]:
    """Make two steps; return the gradients of the last backward pass of the second one."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    hook = smd.Hook(
        path, save_config=smd.SaveConfig(save_interval=1),
        include_collections=["weights", "gradients"],
        reduction_config=smd.ReductionConfig(names) if names else None,
    )  # fmt: skip
    hook.register_module(model)
    for _ in range(2):
        output = model(torch.ones(1, 3))
        for number in range(passes):
            model.zero_grad()
            (output * (number + 1)).sum().backward(retain_graph=True)
        hook.save_tensor("after", torch.ones(4), "default")
        hook.save_scalar("last", 1.0)
    hook.close()
    return {name: each.grad.clone() for name, each in model.named_parameters()}


@RAW
@PASSES
def test_every_tensor_of_a_step_has_a_position_of_its_own(
    tmp_path: Path, passes: int, names: list[str]
) -> None:
    train(tmp_path, passes, names)
    rows = smd.create_trial(tmp_path).to_arrow(["step", "tensor", "position"]).to_pylist()
    for step in (0, 1):
        positions = [row["position"] for row in rows if row["step"] == step]
        assert len(positions) == 8
        assert len(set(positions)) == 8, sorted(positions)


@RAW
@PASSES
def test_the_order_is_the_execution_order(tmp_path: Path, passes: int, names: list[str]) -> None:
    train(tmp_path, passes, names)
    rows = smd.create_trial(tmp_path).to_arrow(["step", "tensor", "position"]).to_pylist()
    for step in (0, 1):
        of_step = sorted((row for row in rows if row["step"] == step), key=lambda r: r["position"])
        order = [row["tensor"] for row in of_step]
        assert order[:2] == ["Sequential_0.weight", "Sequential_1.weight"]
        # Autograd begins with the last layer, also in the last backward pass.
        assert [name.partition(".")[0] for name in order[2:6]] == [
            *["gradient/Sequential_1"] * 2, *["gradient/Sequential_0"] * 2,
        ]  # fmt: skip
        assert order[6:] == ["after", "scalar/last"]


@RAW
@PASSES
def test_values_are_those_of_the_last_backward_pass(
    tmp_path: Path, passes: int, names: list[str]
) -> None:
    gradients = train(tmp_path, passes, names)
    trial = smd.create_trial(tmp_path)
    for path, gradient in gradients.items():
        tensor = trial.tensor(f"gradient/Sequential_{path}")
        if names:
            found = tensor.reduction_values(1)
            assert found[("mean", False)] == pytest.approx(float(gradient.mean()))
            assert found[("max", False)] == pytest.approx(float(gradient.max()))
        else:
            np.testing.assert_array_equal(tensor.value(1), gradient.numpy())


def test_a_gradient_that_only_the_first_pass_has_comes_before_those_of_the_second(
    tmp_path: Path,
) -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    hook = smd.Hook(
        tmp_path, save_config=smd.SaveConfig(save_interval=1), include_collections=["gradients"]
    )
    model = nn.ModuleDict({"first": first, "second": second})
    hook.register_module(model, begins_steps=False)
    hook.begin_step(model)
    x = torch.ones(1, 3)
    (first(x).sum() + second(x).sum()).backward()
    second(x).sum().backward()
    second(x).sum().backward()
    hook.close()
    rows = smd.create_trial(tmp_path).to_arrow(["tensor", "position"]).to_pylist()
    order = [row["tensor"] for row in sorted(rows, key=lambda row: row["position"])]
    assert len({row["position"] for row in rows}) == 4
    layers = [name.partition("_")[2].partition(".")[0] for name in order]
    assert layers == ["first", "first", "second", "second"]
