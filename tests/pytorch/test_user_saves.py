"""Tensors saved by hand are found at the step and in the mode they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tests.hook.user_saves import (
    Script,
    check_script,
    flush_patterns,
    reduction_config,
    reductions,
    scripts,
)

import smdebug.pytorch as smd

if TYPE_CHECKING:
    from pathlib import Path

EVERY = smd.SaveConfig(save_interval=1)


@reductions
@scripts
def test_a_tensor_belongs_to_the_last_step_of_its_mode_or_to_the_first_one(
    tmp_path: Path, script: Script, names: tuple[str, ...]
) -> None:
    for number, flush_at in enumerate(flush_patterns(script)):
        net = torch.nn.Linear(2, 2)
        hook = smd.Hook(
            tmp_path / str(number), save_config=EVERY, include_collections=["weights", "gradients"],
            reduction_config=reduction_config(names),
        )  # fmt: skip
        hook.register_module(net)

        def step(net: Any = net) -> None:
            net(torch.ones(1, 2)).sum().backward()

        check_script(hook, script, step, torch.from_numpy, names, flush_at)


def test_outputs_of_a_step_are_not_merged_with_values_of_the_next(
    tmp_path: Path,
) -> None:
    net = torch.nn.Linear(2, 2)
    hook = smd.Hook(
        tmp_path, save_config=EVERY, include_collections=["mine"],
        reduction_config=smd.ReductionConfig(["min", "max"]),
    )  # fmt: skip
    hook.get_collection("mine").include("output")
    hook.register_module(net)
    hook.set_mode(smd.modes.TRAIN)
    net(torch.ones(1, 2))
    hook.set_mode(smd.modes.EVAL)
    hook.save_tensor("e", torch.ones(2), "mine")
    net(torch.ones(1, 2))
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor("e").steps(mode=smd.modes.EVAL) == [0]
    assert trial.tensor("e").steps() == [1]
