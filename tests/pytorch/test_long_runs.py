"""What a job meets in weeks: ends, forks, exceptions, and memory that must not grow."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import smdebug.pytorch as smd

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import sys, torch
import smdebug.pytorch as smd
hook = smd.Hook(sys.argv[1], save_all=True, save_config=smd.SaveConfig(save_interval=1))
model = torch.nn.Linear(2, 2)
hook.register_module(model)
for _ in range(int(sys.argv[2])):
    model(torch.ones(1, 2)).sum().backward()
hook.save_scalar("x", 1.0)
if sys.argv[3] == "close":
    hook.close()
"""


@pytest.mark.parametrize("ending", ["close", "leave"])
@pytest.mark.parametrize("steps", [1, 3])
def test_program_exits_cleanly_every_time(tmp_path: Path, steps: int, ending: str) -> None:
    for number in range(4):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / str(number)), str(steps), ending]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def every_step(folder: Path, **options: Any) -> smd.Hook:
    return smd.Hook(
        folder, save_config=smd.SaveConfig(save_interval=1), on_error="raise", **options
    )


def test_watching_works_in_inference_mode(tmp_path: Path) -> None:
    config = smd.SaveConfig(save_interval=1000, start_step=1000, when_nan="output")
    hook = smd.Hook(tmp_path, save_all=True, save_config=config, on_error="raise")
    model = nn.Linear(2, 2)
    hook.register_module(model)
    with torch.inference_mode():
        for value in (1.0, float("nan"), 1.0):
            model(torch.full((1, 2), value))
    hook.close()
    trial = smd.create_trial(str(tmp_path))
    assert trial.steps() == [1]
    assert "Linear_input_0" in trial.tensor_names()


def test_tensors_overwritten_in_inference_mode_keep_their_saved_value(tmp_path: Path) -> None:
    """Its tensors do not count writes, so nothing but a copy can be trusted."""
    config = smd.SaveConfig(save_interval=1000, start_step=1000, when_nan="Sequential_output")
    hook = smd.Hook(tmp_path, save_all=True, save_config=config, on_error="raise")
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.fill_(-1.0)
        model[0].bias.fill_(0.0)
        model[2].weight.fill_(float("nan"))
    hook.register_module(model)
    with torch.inference_mode():
        model(torch.ones(1, 2))
    hook.close()
    trial = smd.create_trial(str(tmp_path))
    assert trial.tensor("0_output_0").value(0).tolist() == [[-2.0, -2.0]]
    assert trial.tensor("1_output_0").value(0).tolist() == [[0.0, 0.0]]


def test_a_model_registered_later_is_saved_at_the_steps_of_the_first(tmp_path: Path) -> None:
    first, second = nn.ReLU(), nn.Linear(2, 2)
    hook = every_step(tmp_path, include_collections=["weights"])
    hook.register_module(first)
    for _ in range(3):
        first(torch.ones(1, 2))
    hook.register_module(second)
    first(torch.ones(1, 2))
    hook.close()
    assert smd.create_trial(str(tmp_path)).tensor("Linear_weight").steps() == [3]


def test_steps_are_still_counted_after_a_failure(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    hook = smd.Hook(tmp_path / "run", save_all=True, save_config=smd.SaveConfig(save_interval=1))
    hook.register_module(model)
    model(torch.ones(1, 2))
    (tmp_path / "run" / "events").write_text("in the way")
    for _ in range(6):
        hook.flush()
        model(torch.ones(1, 2))
    assert hook.step == 6
    hook.close()


@dataclass
class Unset:
    """An output of which a field is set later, or never."""

    first: torch.Tensor
    second: torch.Tensor = field(init=False)


def test_output_with_an_unset_field_is_saved_without_it(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> Unset:
            return Unset(self.fc(x))

    model = Net()
    with every_step(tmp_path, save_all=True) as hook:
        hook.register_module(model)
        model(torch.ones(1, 2))
    assert "Net_output_first" in smd.create_trial(str(tmp_path)).tensor_names()


def test_failure_at_the_end_of_a_forward_pass_leaves_no_hooks(tmp_path: Path) -> None:
    class Broken(dict[str, Any]):
        """A dict that cannot be read."""

        def items(self) -> Any:
            raise ArithmeticError("no items today")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.compile(nn.Linear(2, 2), backend="eager")

        def forward(self, x: torch.Tensor) -> Broken:
            return Broken(first=self.fc(x))

    model = Net()
    hook = smd.Hook(tmp_path, save_all=True, save_config=smd.SaveConfig(save_interval=1))
    hook.register_module(model)
    for _ in range(3):
        model(torch.ones(1, 2))
    assert torch._dynamo.eval_frame._stance.stance == "default"
    assert not any(part._forward_hooks for part in model.modules())
    hook.close()


def test_forked_child_is_independent(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    hook = every_step(tmp_path, include_collections=["weights", "gradients"])
    hook.register_module(model)
    model(torch.ones(1, 2)).sum().backward()
    child = os.fork()
    if child == 0:
        try:
            for _ in range(3):
                model(torch.ones(1, 2)).sum().backward()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    model(torch.ones(1, 2)).sum().backward()
    hook.close()
    assert smd.create_trial(str(tmp_path)).steps() == [0, 1]


def sizes(hook: smd.Hook) -> list[int]:
    """How much the parts remember that could grow."""
    pipeline: Any = hook._pipeline
    kinds = [plan for plan in pipeline.plan._kinds.values() if plan is not None]
    builder = pipeline.run.output._writer._publisher._builder
    cached = sum(len(cache._values) for cache in pipeline._caches)
    return [
        len(kinds),
        cached,
        len(pipeline.adapter._gradients._hooked),
        builder._templates.cache_info().currsize,
    ]


def test_replaced_parameters_are_released(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    hook = every_step(tmp_path, include_collections=["weights", "gradients"])
    hook.register_module(model)
    seen = []
    for _ in range(60):
        state = {key: value.clone() for key, value in model.state_dict().items()}
        model.load_state_dict(state, assign=True)
        model(torch.ones(1, 4)).sum().backward()
        hook.flush()
        seen.append(sizes(hook))
    assert seen[-1][:3] == seen[5][:3]
    assert seen[-1][3] <= 256
    hook.close()


def test_get_collection_without_changes_has_no_effect(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    hook = every_step(tmp_path, include_collections=["weights", "gradients"])
    hook.register_module(model)
    plans = []
    for _ in range(5):
        hook.get_collections()
        model(torch.ones(1, 4)).sum().backward()
        plans.append(hook._pipeline.plan)
    assert plans[2] is plans[3] is plans[4]
    hook.get_collection("weights").exclude(".*")
    model(torch.ones(1, 4))
    assert hook._pipeline.plan is not plans[4]
    hook.close()
    assert smd.create_trial(str(tmp_path)).tensor("Linear_weight").steps() == [0, 1, 2, 3, 4]


def test_cache_of_changing_parts_is_bounded(tmp_path: Path) -> None:
    class Experts(nn.ModuleList):
        """As many linear layers as a step requests."""

        def forward(self, x: torch.Tensor, chosen: list[int]) -> torch.Tensor:
            return torch.stack([self[number](x).sum() for number in chosen]).sum()

    model = Experts([nn.Linear(3, 3) for _ in range(8)])
    hook = every_step(tmp_path, include_collections=["gradients"])
    hook.register_module(model)
    for step in range(250):
        model(
            torch.ones(1, 3), [number for number in range(8) if step + 1 >> number & 1]
        ).backward()
        model.zero_grad()
    hook.close()
    trial = smd.create_trial(str(tmp_path))
    for number in range(8):
        steps = [step for step in range(250) if step + 1 >> number & 1]
        assert trial.tensor(f"gradient/Experts_{number}.weight").steps() == steps


def test_earlier_stats_are_not_changed(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with every_step(tmp_path, save_all=True) as hook:
        hook.register_module(model)
        before = hook.stats()
        model(torch.ones(1, 2))
        hook.flush()
        after = hook.stats()
    assert (before.steps, after.steps) == (0, 1)
    assert before.collections == {}
    assert after.collections["weights"].tensors == 1
