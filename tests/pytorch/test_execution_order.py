"""The order of a step's tensors in the index is the order in which they were computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from smdebug import ReductionConfig, SaveConfig
from smdebug.pytorch import Hook
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path


def names_in_order(path: Path) -> list[str]:
    table = create_trial(str(path)).to_arrow(["tensor", "position"]).to_pylist()
    return [row["tensor"] for row in sorted(table, key=lambda row: row["position"])]


def train_once(path: Path, reduced: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    loss = torch.nn.CrossEntropyLoss()
    config = ReductionConfig(reductions=["mean"]) if reduced else None
    with Hook(
        path, save_all=True, save_config=SaveConfig(save_interval=1), reduction_config=config
    ) as hook:
        hook.register_module(model)
        hook.register_loss(loss)
        loss(model(torch.randn(5, 4)), torch.zeros(5, dtype=torch.long)).backward()


def check(names: list[str]) -> None:
    weights = [name for name in names if name.startswith("Sequential_") and "put" not in name]
    gradients = [name for name in names if name.startswith("gradient/")]
    between = names[len(weights) : -len(gradients)]
    assert names == [*weights, *between, *gradients]
    outputs = [name for name in between if name.endswith("output_0")]
    assert outputs == [
        "0_output_0", "1_output_0", "2_output_0", "Sequential_output_0",
        "CrossEntropyLoss_output_0",
    ]  # fmt: skip
    assert between[0] == "Sequential_input_0"
    # Autograd starts at the end: the gradients of the last layer come first.
    layers = [name.removeprefix("gradient/Sequential_").partition(".")[0] for name in gradients]
    assert layers == ["2", "2", "0", "0"]


def test_raw_tensors(tmp_path: Path) -> None:
    train_once(tmp_path, reduced=False)
    check(names_in_order(tmp_path))


def test_reductions(tmp_path: Path) -> None:
    train_once(tmp_path, reduced=True)
    check(names_in_order(tmp_path))


def test_user_values_are_saved_at_the_step_of_the_call(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    with Hook(
        tmp_path, include_collections=["weights", "gradients"],
        save_config=SaveConfig(save_interval=1),
    ) as hook:  # fmt: skip
        hook.register_module(model)
        out = model(torch.randn(3, 2))
        hook.save_scalar("between", 1.0)
        out.sum().backward()
        hook.save_tensor("after", torch.ones(2), "default")
    names = names_in_order(tmp_path)
    assert names[0] == "Linear_weight"
    assert names.index("scalar/between") < names.index("gradient/Linear_weight")
    assert names[-1] == "after"
