"""when_nan: a step with a watched tensor that is not finite is saved, all of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import smdebug.pytorch as smd

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.trials import Trial

NAN, INF = math.nan, math.inf
TRAIN, EVAL = smd.modes.TRAIN, smd.modes.EVAL


def never(*watched: str) -> smd.SaveConfig:
    """Saves no step by schedule, and those at which a watched tensor is not finite."""
    return smd.SaveConfig(end_step=0, when_nan=list(watched))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(2, 3)
        self.act = nn.Tanh()
        self.fc2 = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.fc2(self.act(self.fc1(x)))
        return output


class Script:
    """Trains `Net`; the batch of a step is given, and with it whether something goes wrong."""

    def __init__(self, out_dir: Path, **options: Any) -> None:
        torch.manual_seed(0)
        self.model, self.loss = Net(), nn.MSELoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.hook = smd.Hook(out_dir, **options)
        self.hook.register_module(self.model)
        self.hook.register_loss(self.loss)
        self.weights: list[Any] = []
        self.gradients: list[Any] = []

    def step(self, x: float = 1.0, target: float = 0.0) -> None:
        self.weights.append(self.model.fc1.weight.detach().clone().numpy())
        self.optimizer.zero_grad()
        batch = torch.tensor([[x, 2.0]])
        self.loss(self.model(batch), torch.full((1, 1), target)).backward()
        assert self.model.fc1.weight.grad is not None
        self.gradients.append(self.model.fc1.weight.grad.clone().numpy())
        self.optimizer.step()

    def end(self) -> Trial:
        self.hook.close()
        return smd.create_trial(self.hook.out_dir)


def steps_of(trial: Trial) -> dict[str, list[int]]:
    return {name: trial.tensor(name).steps() for name in trial.tensor_names()}


ALL_NAMES = {
    *("Net_fc1.weight", "Net_fc1.bias", "Net_fc2.weight", "Net_fc2.bias"),
    *("gradient/Net_fc1.weight", "gradient/Net_fc1.bias"),
    *("gradient/Net_fc2.weight", "gradient/Net_fc2.bias"),
    *("Net_input_0", "Net_output_0", "fc1_input_0", "fc1_output_0", "act_input_0"),
    *("act_output_0", "fc2_input_0", "fc2_output_0"),
    *("MSELoss_input_0", "MSELoss_input_1", "MSELoss_output_0"),
}


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("watched", ["MSELoss_output", "fc1_input", "^gradient", "fc2_output_0"])
def test_everything_of_the_step_is_saved_with_the_values_it_had(
    tmp_path: Path, watched: str, format: str
) -> None:
    script = Script(tmp_path, save_all=True, save_config=never(watched), format=format)
    for number in range(5):
        script.step(NAN if number == 3 else 1.0)
    trial = script.end()
    found = steps_of(trial)
    assert {name for name, steps in found.items() if 3 in steps} == ALL_NAMES
    # From then on the weights are not finite, and what is computed from them; inputs are again.
    expected = [3] if watched == "fc1_input" else [3, 4]
    assert all(steps == expected for steps in found.values()), found
    # The weights before the update, although the update has happened by the time.
    np.testing.assert_array_equal(
        trial.tensor("Net_fc1.weight").value(3), script.weights[3], strict=True
    )
    assert np.isfinite(script.weights[3]).all()
    np.testing.assert_array_equal(
        trial.tensor("gradient/Net_fc1.weight").value(3), script.gradients[3], strict=True
    )
    assert np.isnan(trial.tensor("MSELoss_output_0").value(3))


def test_nothing_is_saved_while_everything_is_finite(tmp_path: Path) -> None:
    script = Script(tmp_path, save_all=True, save_config=never(".*"))
    for _ in range(5):
        script.step()
    script.hook.save_scalar("only", 1.0)
    trial = script.end()
    assert steps_of(trial) == {"scalar/only": [4]}


def test_unobserved_non_finite_tensor_saves_nothing(tmp_path: Path) -> None:
    script = Script(tmp_path, save_all=True, save_config=never("act_output"))
    script.step(target=INF)
    script.hook.save_scalar("only", 1.0)
    assert steps_of(script.end()) == {"scalar/only": [0]}


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_nan_and_both_infinities_count(tmp_path: Path, value: float) -> None:
    script = Script(tmp_path, save_config=never("Net_input"), include_collections="weights")
    script.step()
    script.step(value)
    assert "Net_fc1.weight" in steps_of(script.end())


def test_infinite_gradient_with_a_finite_loss(tmp_path: Path) -> None:
    model = nn.Linear(1, 1, bias=False)
    hook = smd.Hook(tmp_path, save_config=never("^gradient"), include_collections=["weights"])
    hook.register_module(model)
    for number in range(3):
        output = model(torch.ones(1, 1))
        # The root of zero has no finite slope.
        (output * 0).sqrt().sum().backward() if number == 1 else output.sum().backward()
        assert output.isfinite().all()
    hook.close()
    assert steps_of(smd.create_trial(tmp_path)) == {"Linear_weight": [1]}


def test_regular_steps_are_saved_too(tmp_path: Path) -> None:
    schedule = smd.SaveConfig(save_interval=4, when_nan="MSELoss_output")
    script = Script(tmp_path, save_config=schedule, include_collections=["gradients"])
    for number in range(7):
        script.step(target=INF if number == 2 else 0.0)
        if number == 2:
            # Back to weights that are finite.
            torch.manual_seed(0)
            script.model.load_state_dict(Net().state_dict())
    trial = script.end()
    assert trial.tensor("MSELoss_output_0").steps() == [0, 2, 4]
    assert trial.tensor("gradient/Net_fc1.weight").steps() == [0, 2, 4]


def test_only_the_collections_under_that_schedule_are_saved(tmp_path: Path) -> None:
    script = Script(
        tmp_path, save_config=smd.SaveConfig(save_interval=3),
        include_collections=["weights", "gradients", "acts"],
    )  # fmt: skip
    script.hook.get_collection("weights").save_config = never("MSELoss_output")
    script.hook.get_collection("acts").include("act_output")
    script.hook.get_collection("acts").save_config = never("MSELoss_output")
    for number in range(5):
        script.step(target=INF if number == 4 else 0.0)
    found = steps_of(script.end())
    assert found["Net_fc1.weight"] == found["act_output_0"] == [4]
    assert found["MSELoss_output_0"] == found["gradient/Net_fc1.weight"] == [0, 3]


def test_when_nan_is_per_mode(tmp_path: Path) -> None:
    schedule = smd.SaveConfig(
        {
            TRAIN: smd.SaveConfigMode(end_step=0),
            EVAL: smd.SaveConfigMode(end_step=0, when_nan=["Net_output"]),
        }
    )
    script = Script(tmp_path, save_config=schedule, include_collections=["weights", "gradients"])
    for mode in (TRAIN, EVAL, TRAIN, EVAL):
        script.hook.set_mode(mode)
        with torch.no_grad():
            script.model(torch.tensor([[NAN, 1.0]]))
    found = steps_of(script.end())
    assert found == {"Net_fc1.weight": [1, 3], "Net_fc2.weight": [1, 3]}


def test_reductions_are_those_of_the_collection(tmp_path: Path) -> None:
    script = Script(
        tmp_path, save_config=never("MSELoss_output"), include_collections="weights",
        reduction_config=smd.ReductionConfig(["min", "nans"], norms=["l2"]),
    )  # fmt: skip
    script.step()
    script.step(target=INF)
    trial = script.end()
    saved = trial.tensor("Net_fc1.weight").reduction_values(1)
    assert saved == {
        ("min", False): script.weights[1].min(),
        ("nans", False): 0,
        ("l2", False): pytest.approx(np.linalg.norm(script.weights[1].astype(np.float64)), 1e-6),
    }
    assert trial.tensor("Net_fc1.weight").values() == {}


class Overwrites(nn.Module):
    """Changes the output of one part in place after it was seen."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.kept = nn.Tanh()
        self.last = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.fc(x)
        kept = self.kept(hidden)
        with torch.no_grad():
            hidden += 1
        return torch.as_tensor(self.last(kept * x))


def test_overwritten_tensor_is_not_saved_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Overwrites()
    hook = smd.Hook(tmp_path, save_config=never("last_output"), include_regex="_output_")
    hook.register_module(model)
    model(torch.ones(1, 2))
    assert "overwritten" not in caplog.text
    x = torch.tensor([[INF, 1.0]])
    expected = torch.tanh(model.fc(x)).detach().numpy()
    model(x)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert steps_of(trial) == {
        "Overwrites_output_0": [1], "kept_output_0": [1], "last_output_0": [1],
    }  # fmt: skip
    np.testing.assert_array_equal(trial.tensor("kept_output_0").value(1), expected)
    (line,) = [each.getMessage() for each in caplog.records if "overwritten" in each.getMessage()]
    assert "fc_output_0" in line
    assert "last_output_0" in line


def test_weight_updated_before_the_nan_loss_is_not_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(tmp_path, save_config=never("late"), include_collections=["weights", "late"])
    script.hook.get_collection("late").include("late")
    script.step()
    script.hook.record_tensor_value("late", torch.tensor(NAN))
    trial = script.end()
    found = steps_of(trial)
    assert found == {"MSELoss_output_0": [0], "late_output_0": [0]}
    assert "Net_fc1.weight" in caplog.text
    assert "overwritten" in caplog.text


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_short_and_long_floats_are_observed(tmp_path: Path, dtype: torch.dtype) -> None:
    model = nn.Identity()
    hook = smd.Hook(tmp_path, save_config=never("Identity_output"), include_regex="input")
    hook.register_module(model)
    for value in (1.0, INF, 2.0, NAN):
        model(torch.tensor([1.0, value], dtype=dtype))
    hook.close()
    assert smd.create_trial(tmp_path).tensor("Identity_input_0").steps() == [1, 3]


@pytest.mark.parametrize("value", [torch.arange(3), torch.tensor([True]), torch.ones(0)])
def test_tensors_that_are_always_finite_never_trigger_when_nan(
    tmp_path: Path, value: torch.Tensor
) -> None:
    model = nn.Identity()
    hook = smd.Hook(tmp_path, save_config=never("Identity"), include_regex="input")
    hook.register_module(model)
    model(value)
    hook.save_scalar("only", 1.0)
    hook.close()
    assert smd.create_trial(tmp_path).tensor_names() == ["scalar/only"]


def test_complex_numbers_are_observed(tmp_path: Path) -> None:
    model = nn.Identity()
    hook = smd.Hook(tmp_path, save_config=never("Identity"), include_regex="input")
    hook.register_module(model)
    model(torch.tensor([1 + 1j]))
    model(torch.tensor([complex(1, NAN)]))
    hook.close()
    assert smd.create_trial(tmp_path).tensor("Identity_input_0").steps() == [1]


def test_tensors_are_not_kept_alive_longer_than_their_step(tmp_path: Path) -> None:
    import gc
    import weakref

    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    hook = smd.Hook(tmp_path, save_config=never("never"), save_all=True)
    hook.register_module(model)
    output = model(torch.ones(1, 2))
    reference = weakref.ref(output)
    del output
    model(torch.ones(1, 2))
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("scalar", [True, False])
def test_a_loss_that_is_saved_by_hand_is_watched(tmp_path: Path, scalar: bool) -> None:
    config = smd.SaveConfig(end_step=0, when_nan=["my_loss"])
    included = ["weights", "biases", "gradients"]
    hook = smd.Hook(tmp_path, include_collections=included, save_config=config)
    model = Net()
    hook.register_module(model)
    for target in (0.0, NAN, 0.0):
        loss = nn.functional.mse_loss(model(torch.ones(1, 2)), torch.full((1, 1), target))
        loss.backward()
        if scalar:
            hook.save_scalar("my_loss", loss)
        else:
            hook.save_tensor("my_loss", loss, "losses")
    hook.close()
    saved = steps_of(smd.create_trial(str(tmp_path)))
    assert saved.pop("scalar/my_loss" if scalar else "my_loss") == ([0, 1, 2] if scalar else [1])
    weights = {name for name in ALL_NAMES if name.endswith((".weight", ".bias"))}
    assert saved == {name: [1] for name in weights}
