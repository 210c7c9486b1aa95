"""Which tensors are saved, when, and what of them: collections from the user's side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.config.collection import Collection as PlainCollection
from smdebug.exceptions import (
    InvalidCollectionConfiguration,
    SMDebugError,
    SMDebugTypeError,
    SMDebugValueError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from smdebug.trials import Trial

EVERY = smd.SaveConfig(save_interval=1)
OFF = smd.SaveConfig(end_step=0)

WEIGHTS = ["Net_fc1.weight", "Net_fc2.weight"]
BIASES = ["Net_fc1.bias", "Net_fc2.bias"]
GRADIENTS = [f"gradient/{name}" for name in sorted([*WEIGHTS, *BIASES])]
LOSSES = ["MSELoss_output_0"]
ACTIVATIONS = [
    *("Net_input_0", "Net_output_0", "fc1_input_0", "fc1_output_0"),
    *("fc2_input_0", "fc2_output_0", "relu_input_0", "relu_output_0"),
]
LOSS_INPUTS = ["MSELoss_input_0", "MSELoss_input_1"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.fc2(self.relu(self.fc1(x)))
        return output


def train(hook: smd.Hook, steps: int = 1, before: Callable[[int], None] = lambda _: None) -> Trial:
    """Trains `Net` and opens the run; `before` is called before every step."""
    torch.manual_seed(0)
    model, loss = Net(), nn.MSELoss()
    hook.register_module(model)
    hook.register_loss(loss)
    for number in range(steps):
        before(number)
        loss(model(torch.randn(5, 4)), torch.zeros(5, 3)).backward()
    hook.close()
    return smd.create_trial(hook.out_dir)


def collections_file(out_dir: Path, worker: str = "worker_0") -> dict[str, Any]:
    path = out_dir / "collections" / "000000000" / f"{worker}_collections.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


# ---- what is saved


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, LOSSES),
        ({"include_collections": []}, LOSSES),
        ({"include_collections": "weights"}, [*LOSSES, *WEIGHTS]),
        ({"include_collections": ["biases"]}, [*LOSSES, *BIASES]),
        ({"include_collections": ["bias"]}, [*LOSSES, *BIASES]),
        ({"include_collections": ["gradients"]}, [*LOSSES, *GRADIENTS]),
        ({"include_collections": ["weights", ["bias"]]}, [*LOSSES, *WEIGHTS, *BIASES]),
        ({"include_regex": "relu"}, [*LOSSES, "relu_input_0", "relu_output_0"]),
        ({"include_regex": ["^fc2_out", "1.bias"]},
         [*LOSSES, "fc2_output_0", "Net_fc1.bias", "gradient/Net_fc1.bias"]),
        ({"include_collections": ["default"]}, LOSSES),
        ({"include_collections": ["all"]}, [*LOSSES, *WEIGHTS, *BIASES, *GRADIENTS]),
        ({"save_all": True},
         [*LOSSES, *LOSS_INPUTS, *WEIGHTS, *BIASES, *GRADIENTS, *ACTIVATIONS]),
    ],
    ids=str,
)  # fmt: skip
def test_the_names_saved(tmp_path: Path, options: dict[str, Any], expected: list[str]) -> None:
    trial = train(smd.Hook(tmp_path, save_config=EVERY, **options))
    assert trial.tensor_names() == sorted(expected)


@pytest.mark.parametrize(
    ("name", "regexes", "members"),
    [
        ("all", [], []),
        ("default", [], []),
        ("weights", ["^(?!gradient).*weight"], WEIGHTS),
        ("biases", ["^(?!gradient).*bias"], BIASES),
        ("gradients", ["^gradient"], GRADIENTS),
        ("losses", ["[Ll]oss_(?!input).*output"], LOSSES),
    ],
)
def test_default_collections(
    tmp_path: Path, name: str, regexes: list[str], members: list[str]
) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="all")
    assert hook.get_collection(name, create=False).include_regex == regexes
    trial = train(hook)
    assert trial.collection(name).include_regex == regexes
    if members:
        assert trial.tensor_names(collection=name) == sorted(members)


def test_custom_collection(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["mine"])
    hook.get_collection("mine").include(["relu_output", "fc1_input"])
    trial = train(hook)
    assert trial.tensor_names(collection="mine") == ["fc1_input_0", "relu_output_0"]


def test_a_collection_that_is_not_included_is_not_saved(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY)
    hook.get_collection("mine").include("relu_output")
    trial = train(hook)
    assert trial.tensor_names() == LOSSES
    assert "mine" in trial.collections()


def test_an_added_collection_replaces_the_one_of_its_name(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["weights", "mine"])
    hook.add_collection(smd.Collection("weights", include_regex="fc2.weight$"))
    hook.add_collection(PlainCollection("mine", include_regex="relu_output"))
    trial = train(hook)
    names = [*LOSSES, "Net_fc2.weight", "gradient/Net_fc2.weight", "relu_output_0"]
    assert trial.tensor_names() == sorted(names)


@pytest.mark.parametrize("value", [None, "weights", 7, ["weights"]])
def test_only_a_collection_can_be_added(tmp_path: Path, value: Any) -> None:
    with pytest.raises(SMDebugTypeError, match="Collection"):
        smd.Hook(tmp_path).add_collection(value)


def test_get_collection_creates_by_default(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path)
    with pytest.raises(SMDebugError, match="weight"):
        hook.get_collection("weigths", create=False)
    assert isinstance(hook.get_collection("mine"), smd.Collection)
    assert set(hook.get_collections()) == {
        *("all", "default", "weights", "biases", "gradients", "losses", "scalars", "mine")
    }
    assert hook.get_collection("bias") is hook.get_collection("biases")


def test_excluded_tensor_is_not_saved(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="weights")
    hook.get_collection("weights").exclude("fc1")
    assert train(hook).tensor_names() == [*LOSSES, "Net_fc2.weight"]


@pytest.mark.parametrize("name", ["mine", "inputs"])
def test_empty_collection_is_rejected_at_the_first_forward_pass(tmp_path: Path, name: str) -> None:
    hook = smd.Hook(tmp_path)
    hook.get_collection(name)
    model = Net()
    hook.register_module(model)
    with pytest.raises(InvalidCollectionConfiguration, match=name):
        model(torch.ones(1, 4))


def test_included_empty_collection_is_rejected_at_the_first_forward_pass(
    tmp_path: Path,
) -> None:
    hook = smd.Hook(tmp_path, include_collections=["relus"])
    model = Net()
    hook.register_module(model)
    with pytest.raises(InvalidCollectionConfiguration, match="relus"):
        model(torch.ones(1, 4))


# ---- when


def test_end_step_0_disables_losses(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="weights")
    hook.get_collection("losses").save_config = OFF
    assert train(hook, 3).tensor_names() == WEIGHTS


def test_a_hook_that_saves_nothing_at_all(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=OFF)
    train_only = nn.Linear(2, 2)
    hook.register_module(train_only)
    train_only(torch.ones(1, 2)).sum().backward()
    hook.close()
    assert hook.stats().saved_steps == 0
    assert hook.last_saved_step is None


def test_collections_have_their_own_save_schedules(tmp_path: Path) -> None:
    names = ["weights", "gradients", "relu"]
    hook = smd.Hook(
        tmp_path, save_config=smd.SaveConfig(save_interval=4), include_collections=names
    )
    hook.get_collection("weights").save_config = smd.SaveConfig(save_interval=3)
    hook.get_collection("gradients").save_config = smd.SaveConfig(save_steps=[1, 6], end_step=0)
    hook.get_collection("relu").include("relu_output")
    hook.get_collection("relu").save_config = {smd.modes.EVAL: smd.SaveConfigMode(save_interval=1)}
    trial = train(hook, 8)
    assert trial.tensor("Net_fc1.weight").steps() == [0, 3, 6]
    assert trial.tensor("gradient/Net_fc1.weight").steps() == [1, 6]
    # A mode the collection leaves open is the hook's.
    assert trial.tensor("relu_output_0").steps() == [0, 4]
    assert trial.tensor("MSELoss_output_0").steps() == [0, 4]
    assert trial.steps() == [0, 1, 3, 4, 6]


@pytest.mark.parametrize("value", [smd.SaveConfigMode(save_interval=1), 7, "1"])
def test_a_schedule_of_a_collection_is_for_modes(tmp_path: Path, value: Any) -> None:
    with pytest.raises(SMDebugTypeError, match="save_config"):
        smd.Hook(tmp_path).get_collection("weights").save_config = value


def test_collections_may_change_between_steps(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["weights", "mine"])
    hook.get_collection("mine").include("relu_output")

    def change(number: int) -> None:
        if number == 1:
            hook.get_collection("mine").include("fc2_output")
        if number == 2:
            hook.get_collection("weights").save_config = OFF
        if number == 3:
            hook.add_collection(smd.Collection("mine", include_regex="fc1_input"))
            hook.get_collection("losses").reduction_config = smd.ReductionConfig(["min"])

    trial = train(hook, 5, change)
    assert trial.tensor("relu_output_0").steps() == [0, 1, 2]
    assert trial.tensor("fc2_output_0").steps() == [1, 2]
    assert trial.tensor("Net_fc1.weight").steps() == [0, 1]
    assert trial.tensor("fc1_input_0").steps() == [3, 4]
    assert trial.tensor("MSELoss_output_0").steps() == [0, 1, 2, 3, 4]


def test_a_collection_kept_by_the_user_may_change_before_the_first_step(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["mine"])
    mine = hook.get_collection("mine")

    def change(number: int) -> None:
        if number == 0:
            hook.save_scalar("early", 1.0)
            mine.include("relu_output")

    assert train(hook, 2, change).tensor("relu_output_0").steps() == [0, 1]


# ---- what of them


def test_collections_have_their_own_reductions(tmp_path: Path) -> None:
    names = ["weights", "biases", "gradients", "shapes"]
    hook = smd.Hook(
        tmp_path, save_config=EVERY, include_collections=names,
        reduction_config=smd.ReductionConfig(["max"], abs_norms=["l1"]),
    )  # fmt: skip
    hook.get_collection("biases").reduction_config = smd.ReductionConfig(
        ["mean"], save_raw_tensor=True
    )
    hook.get_collection("gradients").reduction_config = smd.ReductionConfig(
        abs_reductions=["min"], norms=["l2"]
    )
    hook.get_collection("shapes").include("relu_output")
    hook.get_collection("shapes").reduction_config = smd.ReductionConfig(save_shape=True)
    trial = train(hook)

    def saved(name: str) -> tuple[set[str], bool]:
        tensor = trial.tensor(name)
        reductions = {f"{'abs_' if a else ''}{key}" for key, a in tensor.reduction_values(0)}
        return reductions, bool(tensor.values())

    assert saved("Net_fc1.weight") == ({"max", "abs_l1"}, False)
    assert saved("Net_fc1.bias") == ({"mean"}, True)
    assert saved("gradient/Net_fc1.weight") == ({"abs_min", "l2"}, False)
    assert saved("relu_output_0") == (set(), False)
    assert trial.tensor("relu_output_0").shape(0) == (5, 8)
    assert trial.tensor("Net_fc1.weight").shape(0) == (8, 4)
    # Losses are numbers: always themselves, never reduced.
    assert saved("MSELoss_output_0") == (set(), True)


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_tensor_of_several_collections_is_saved_once_with_all_reductions(
    tmp_path: Path, format: str
) -> None:
    hook = smd.Hook(
        tmp_path, save_config=EVERY, include_collections=["weights", "mine", "others"],
        reduction_config=smd.ReductionConfig(["max"]), format=format,
    )  # fmt: skip
    hook.get_collection("mine").include("fc1.weight$")
    hook.get_collection("mine").reduction_config = smd.ReductionConfig(["min", "max"])
    hook.get_collection("mine").save_config = smd.SaveConfig(save_interval=2)
    hook.get_collection("others").include("fc1")
    hook.get_collection("others").reduction_config = smd.ReductionConfig(save_raw_tensor=True)
    hook.get_collection("others").save_config = smd.SaveConfig(save_interval=3)
    trial = train(hook, 4)
    tensor = trial.tensor("Net_fc1.weight")
    names = [{key for key, _ in tensor.reduction_values(number)} for number in range(4)]
    assert names == [{"min", "max"}, {"max"}, {"min", "max"}, {"max"}]
    assert sorted(tensor.values()) == [0, 3]
    table = trial.to_arrow(["step", "tensor"]).to_pylist()
    assert len(table) == len({(row["step"], row["tensor"]) for row in table})


def test_empty_reductions_save_nothing(tmp_path: Path) -> None:
    hook = smd.Hook(
        tmp_path, save_config=EVERY, save_all=True, reduction_config=smd.ReductionConfig()
    )
    assert train(hook).tensor_names() == LOSSES


# ---- the collections file


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_the_collections_file_has_every_collection_resolved(tmp_path: Path, format: str) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="weights", format=format)
    hook.get_collection("mine").include("relu")
    train(hook)
    stored = collections_file(tmp_path)
    assert set(stored) == {"collections", "_meta"}
    assert stored["_meta"]["num_workers"] == 1
    assert set(stored["collections"]) >= {
        *("all", "default", "weights", "biases", "gradients", "losses", "mine")
    }
    weights = stored["collections"]["weights"]
    assert weights["tensor_names"] == WEIGHTS
    assert weights["save_config"] == EVERY.to_json_dict()
    assert weights["reduction_config"]["save_raw_tensor"] is True
    assert stored["collections"]["losses"]["tensor_names"] == LOSSES
    assert stored["collections"]["mine"]["tensor_names"] == []


class Late(nn.Module):
    """Calls one of its parts only from its third forward pass on."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.late = nn.Tanh()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        output: torch.Tensor = self.fc(x)
        return output if self.calls < 3 else torch.as_tensor(self.late(output))


def test_names_seen_late_are_in_the_collections_file(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="mine")
    hook.get_collection("mine").include("output")
    model = Late()
    hook.register_module(model)
    for _ in range(4):
        model(torch.ones(1, 2)).sum().backward()
    hook.save_scalar("later", 1.0)
    hook.close()
    stored = collections_file(tmp_path)["collections"]
    assert stored["mine"]["tensor_names"] == ["Late_output_0", "fc_output_0", "late_output_0"]
    assert stored["scalars"]["tensor_names"] == ["scalar/later"]
    trial = smd.create_trial(tmp_path)
    assert trial.tensor("late_output_0").steps() == [2, 3]


def test_export_collections_writes_the_file_now(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="weights")
    model = Net()
    hook.register_module(model)
    model(torch.ones(1, 4))
    hook.export_collections()
    hook.flush()
    assert collections_file(tmp_path)["collections"]["weights"]["tensor_names"] == WEIGHTS


@pytest.mark.parametrize(("include", "count"), [("one", 1), ("all", 3)])
def test_the_collections_file_has_the_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, include: str, count: int
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    hook = smd.Hook(tmp_path, save_config=EVERY, include_workers=include)
    train_model = Net()
    hook.register_module(train_model)
    train_model(torch.ones(1, 4))
    hook.close()
    assert collections_file(tmp_path)["_meta"]["num_workers"] == count


def test_a_worker_that_is_not_the_first_writes_only_when_all_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    for include in ("one", "all"):
        out_dir = tmp_path / include
        hook = smd.Hook(out_dir, save_config=EVERY, save_all=True, include_workers=include)
        assert hook.worker == "worker_2"
        model = Net()
        hook.register_module(model)
        model(torch.ones(1, 4)).sum().backward()
        hook.save_scalar("x", 1.0)
        hook.close()
    assert not (tmp_path / "one").exists()
    assert collections_file(tmp_path / "all", "worker_2")["_meta"]["num_workers"] == 3
    # The first worker says when the job is over.
    assert not (tmp_path / "all" / "training_job_end.ts").exists()


# ---- tensors by module, parameter and name


def test_add_module_tensors(tmp_path: Path) -> None:
    model, loss = Net(), nn.MSELoss()
    names = ["outs", "both", "ins", "root", "loss"]
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=names)
    hook.get_collection("outs").add_module_tensors(model.fc1)
    both = hook.get_collection("both")
    assert isinstance(both, smd.Collection)
    both.add_module_tensors(model.relu, inputs=True)
    ins = smd.Collection("ins")
    ins.add_module_tensors(model.fc2, inputs=True, outputs=False)
    hook.add_collection(ins)
    root, losses = smd.Collection("root"), smd.Collection("loss")
    root.add_module_tensors(model, inputs=True, outputs=True)
    losses.add_module_tensors(loss, True, False)
    hook.add_collection(root)
    hook.add_collection(losses)
    # Registered after the collections were filled.
    hook.register_module(model)
    hook.register_loss(loss)
    for _ in range(2):
        loss(model(torch.ones(2, 4)), torch.ones(2, 3)).backward()
    hook.close()
    trial = smd.create_trial(tmp_path)
    expected = {
        "outs": ["fc1_output_0"],
        "both": ["relu_input_0", "relu_output_0"],
        "ins": ["fc2_input_0"],
        "root": ["Net_input_0", "Net_output_0"],
        "loss": ["MSELoss_input_0", "MSELoss_input_1"],
    }
    assert {name: trial.tensor_names(collection=name) for name in names} == expected
    assert all(trial.tensor(name).steps() == [0, 1] for name in trial.tensor_names())


def test_a_module_is_matched_by_its_whole_path(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.ReLU()), nn.ReLU())
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="mine")
    mine = smd.Collection("mine")
    mine.add_module_tensors(model[2])
    hook.add_collection(mine)
    hook.register_module(model)
    model(torch.ones(1, 2))
    hook.close()
    assert smd.create_trial(tmp_path).tensor_names() == ["2_output_0"]


@pytest.mark.parametrize("value", [None, "fc1", torch.ones(2), nn.Linear])
def test_add_module_tensors_takes_a_module(value: Any) -> None:
    with pytest.raises(SMDebugTypeError, match="mine"):
        smd.Collection("mine").add_module_tensors(value)


def test_names_parameters_and_modules_can_be_added(tmp_path: Path) -> None:
    model = Net()
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="mine")
    mine = hook.get_collection("mine")
    assert isinstance(mine, smd.Collection)
    mine.add("Net_fc1.bias")
    mine.add([model.fc2.bias, (model.relu, {"gradient/Net_fc2.weight"})])
    hook.add_to_collection("mine", model.fc1.weight)
    hook.register_module(model)
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
    hook.close()
    trial = smd.create_trial(tmp_path)
    names = [
        *("Net_fc1.bias", "Net_fc1.weight", "Net_fc2.bias"),
        *("gradient/Net_fc2.weight", "relu_output_0"),
    ]
    assert trial.tensor_names() == names
    assert all(trial.tensor(name).steps() == [0, 1] for name in names)
    np.testing.assert_array_equal(
        trial.tensor("Net_fc1.weight").value(0), model.fc1.weight.detach().numpy()
    )


def test_an_added_module_brings_its_parameters_and_outputs(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2))
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="mine")
    hook.register_module(model)
    hook.add_to_collection("mine", model[0])
    model(torch.ones(2, 2)).sum().backward()
    hook.close()
    names = ["0_output_0", "Sequential_0.0.bias", "Sequential_0.0.weight"]
    assert smd.create_trial(tmp_path).tensor_names() == names


@pytest.mark.parametrize("value", [7, torch.ones(2), [torch.ones(2)], ["a", 7], [None]])
def test_objects_without_a_name_cannot_be_added(tmp_path: Path, value: Any) -> None:
    with pytest.raises(SMDebugTypeError, match="mine"):
        smd.Collection("mine").add(value)


@pytest.mark.parametrize("what", ["module", "parameter"])
def test_parts_of_unregistered_modules_are_rejected_at_the_first_forward_pass(
    tmp_path: Path, what: str
) -> None:
    stranger = nn.Linear(7, 5)
    hook = smd.Hook(tmp_path, include_collections="mine")
    hook.add_to_collection("mine", stranger.weight if what == "parameter" else nn.ReLU())
    model = Net()
    hook.register_module(model)
    with pytest.raises(SMDebugValueError, match=r"mine.*register_module"):
        model(torch.ones(1, 4))


def test_a_tied_parameter_is_added_under_all_its_names(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections="mine")
    hook.add_to_collection("mine", model[0].weight)
    hook.register_module(model)
    model(torch.ones(1, 2)).sum().backward()
    hook.close()
    assert smd.create_trial(tmp_path).tensor_names() == [
        *("Sequential_0.weight", "Sequential_1.weight")
    ]
