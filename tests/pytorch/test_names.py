"""What tensors are called."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import smdebug.pytorch as smd
from smdebug.hook.naming import StepNames, tensors_in
from smdebug.pytorch.naming import plain_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from smdebug.trials import Trial

EVERY = smd.SaveConfig(save_interval=1)


def tensor(value: float) -> torch.Tensor:
    """A tensor that is recognised by its values."""
    return torch.full((2,), float(value))


class Returns(nn.Module):
    """Returns what a function makes of its inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.inner = Inner(function)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


class Inner(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def save_call(tmp_path: Path, model: nn.Module, *args: Any, **kwargs: Any) -> Trial:
    """Calls a model twice, in two steps, and returns the run."""
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True)
    hook.register_module(model)
    model(*args, **kwargs)
    model(*args, **kwargs)
    hook.close()
    trial = smd.create_trial(tmp_path)
    for name in trial.tensor_names():
        # The numbering starts again at every step.
        assert trial.tensor(name).steps() == [0, 1], name
    return trial


def names_with(trial: Trial, beginning: str) -> dict[str, float]:
    """Names after a beginning, and the first number of each tensor."""
    return {
        name.removeprefix(beginning): float(trial.tensor(name).value(0).reshape(-1)[0])
        for name in trial.tensor_names()
        if name.startswith(beginning)
    }


Point = namedtuple("Point", ["x", "y"])


class Pair(NamedTuple):
    first: torch.Tensor
    second: Any


@dataclasses.dataclass
class Plain:
    logits: torch.Tensor
    extra: Any = None


@dataclasses.dataclass
class ModelOutput(OrderedDict):  # type: ignore[type-arg]
    """Like the outputs of transformers: a dict with its fields as items."""

    logits: Any = None
    hidden: Any = None
    absent: Any = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value


OUTPUTS: list[tuple[str, Any, dict[str, float]]] = [
    ("tensor", tensor(1), {"0": 1}),
    ("tuple", (tensor(1), tensor(2)), {"0": 1, "1": 2}),
    ("list", [tensor(1), tensor(2)], {"0": 1, "1": 2}),
    ("nested", (tensor(1), [tensor(2), (tensor(3),)], tensor(4)), {"0": 1, "1": 2, "2": 3, "3": 4}),
    ("dict", {"a": tensor(1), "b": tensor(2)}, {"a": 1, "b": 2}),
    ("dict-of-numbers", {0: tensor(1), 7: tensor(2)}, {"0": 1, "7": 2}),
    ("dict-of-list", {"a": [tensor(1), tensor(2)]}, {"a_0": 1, "a_1": 2}),
    ("nested-dicts", {"a": {"b": tensor(1), "c": {"d": tensor(2)}}}, {"a_b": 1, "a_c_d": 2}),
    ("tuple-of-dict", (tensor(1), {"a": tensor(2)}), {"0": 1, "a": 2}),
    ("tuple-of-same-dicts", ({"a": tensor(1)}, {"a": tensor(2)}), {"a": 1, "a_1": 2}),
    ("dataclass", Plain(tensor(1), (tensor(2), None)), {"logits": 1, "extra_0": 2}),
    ("namedtuple", Point(tensor(1), tensor(2)), {"x": 1, "y": 2}),
    ("typed-namedtuple", Pair(tensor(1), {"z": tensor(2)}), {"first": 1, "second_z": 2}),
    ("model-output", ModelOutput(tensor(1), (tensor(2), tensor(3))),
     {"logits": 1, "hidden_0": 2, "hidden_1": 3}),
    ("non-tensors", (1.5, None, "text", tensor(1), np.ones(2), True, {"a": 7}), {"0": 1}),
    ("nothing", None, {}),
    ("parameter", nn.Parameter(tensor(1)), {"0": 1}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("output", "expected"), [each[1:] for each in OUTPUTS], ids=[each[0] for each in OUTPUTS]
)
def test_outputs(tmp_path: Path, output: Any, expected: dict[str, float]) -> None:
    trial = save_call(tmp_path, Returns(lambda _: output), tensor(9))
    assert names_with(trial, "inner_output_") == expected
    assert names_with(trial, "Returns_output_") == expected
    assert names_with(trial, "inner_input_") == {"0": 9}


@pytest.mark.parametrize(
    ("given", "expected"), [each[1:] for each in OUTPUTS], ids=[each[0] for each in OUTPUTS]
)
def test_inputs(tmp_path: Path, given: Any, expected: dict[str, float]) -> None:
    trial = save_call(tmp_path, Returns(lambda _: tensor(9)), given)
    assert names_with(trial, "inner_input_") == expected
    assert names_with(trial, "Returns_input_") == expected


def test_keyword_inputs_are_named_by_their_keyword(tmp_path: Path) -> None:
    model = Returns(lambda x, **_: x)
    arguments: dict[str, Any] = {"mask": tensor(2), "pair": (tensor(3), tensor(4)), "flag": True}
    trial = save_call(tmp_path, model, tensor(1), **arguments)
    expected = {"0": 1.0, "mask": 2.0, "pair_0": 3.0, "pair_1": 4.0}
    assert names_with(trial, "inner_input_") == expected
    assert names_with(trial, "Returns_input_") == expected


class Repeats(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Hardtanh(-100, 100)
        self.block = nn.Sequential(self.twice, nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.block(self.twice(x) + 1) + self.twice(x + 5))


def test_module_called_twice_in_a_step_is_numbered(tmp_path: Path) -> None:
    trial = save_call(tmp_path, Repeats(), tensor(1))
    assert names_with(trial, "twice_input_") == {"0": 1, "1": 2, "2": 6}
    assert names_with(trial, "twice_output_") == {"0": 1, "1": 2, "2": 6}
    # It is a part under its first path only.
    assert names_with(trial, "block.0_output_") == {}
    assert names_with(trial, "block.1_output_") == {"0": 2}


def test_parameters_and_gradients_have_the_path_below_the_class_of_the_root(
    tmp_path: Path,
) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))
            self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.LayerNorm(3)])
            self.heads = nn.ModuleDict({"a-b": nn.Linear(3, 1, bias=False)})
            self.register_buffer("steps", torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x * self.scale)
            return torch.as_tensor(self.heads["a-b"](x))

    model = Outer()
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True)
    hook.register_module(model)
    model(torch.ones(2, 3)).sum().backward()
    hook.close()
    trial = smd.create_trial(tmp_path)
    parameters = [f"Outer_{name}" for name, _ in model.named_parameters()]
    assert "Outer_blocks.0.weight" in parameters
    gradients = [f"gradient/{name}" for name in parameters]
    found = [name for name in trial.tensor_names() if "_input_" not in name]
    found = [name for name in found if "_output_" not in name]
    assert found == sorted([*parameters, *gradients])
    assert names_with(trial, "blocks.1_output_").keys() == {"0"}
    assert names_with(trial, "heads.a-b_output_").keys() == {"0"}
    for name, parameter in model.named_parameters():
        np.testing.assert_array_equal(
            trial.tensor(f"Outer_{name}").value(0), parameter.detach().numpy()
        )
        assert parameter.grad is not None
        np.testing.assert_array_equal(
            trial.tensor(f"gradient/Outer_{name}").value(0), parameter.grad.numpy()
        )


def test_a_tied_parameter_is_saved_under_each_of_its_names(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["weights", "gradients"])
    hook.register_module(model)
    model(torch.ones(1, 2)).sum().backward()
    hook.close()
    trial = smd.create_trial(tmp_path)
    for kind in ("", "gradient/"):
        first = trial.tensor(f"{kind}Sequential_0.weight").value(0)
        np.testing.assert_array_equal(first, trial.tensor(f"{kind}Sequential_1.weight").value(0))
    # Of both places together, as torch adds them up.
    np.testing.assert_array_equal(
        trial.tensor("gradient/Sequential_0.weight").value(0), model[0].weight.grad.numpy()
    )


def test_losses_are_named_after_their_class_and_counted(tmp_path: Path) -> None:
    model, losses = nn.Linear(2, 2), [nn.MSELoss(), nn.MSELoss(), nn.L1Loss()]
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True)
    hook.register_module(model)
    for loss in losses:
        hook.register_loss(loss)
    values = []
    for _ in range(2):
        output = model(torch.ones(1, 2))
        values.append([loss(output, output.detach() + i + 1) for i, loss in enumerate(losses)])
        sum(values[-1]).backward()
    hook.close()
    trial = smd.create_trial(tmp_path)
    names = ["MSELoss_output_0", "MSELoss_output_1", "L1Loss_output_0"]
    assert trial.tensor_names(collection="losses") == sorted(names)
    for number in range(2):
        for name, value in zip(names, values[number], strict=True):
            found = trial.tensor(name).value(number)
            assert found.shape == ()
            assert found == value.detach().numpy()
    assert [name for name in trial.tensor_names() if name.startswith("MSELoss_input")] == [
        f"MSELoss_input_{number}" for number in range(4)
    ]


def test_custom_loss_module_can_be_registered(tmp_path: Path) -> None:
    class FocalLoss(nn.Module):
        def forward(self, output: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"main": output.sum(), "side": output.mean()}

    model, loss = nn.Linear(2, 2), FocalLoss()
    hook = smd.Hook(tmp_path, save_config=EVERY)
    hook.register_module(model)
    hook.register_loss(loss)
    loss(model(torch.ones(1, 2)))["main"].backward()
    hook.close()
    assert smd.create_trial(tmp_path).tensor_names() == [
        *("FocalLoss_output_main", "FocalLoss_output_side")
    ]


class Fork(nn.Module):
    """Calls different parts, with different outputs, at different steps."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Tanh(), Inner(lambda x: {"a": x} if x[0] < 3 else {"b": x})
        self.calls = 0

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        return self.left(x) if self.calls % 2 else self.right(x * self.calls)


def test_parts_and_outputs_that_appear_late_are_named(tmp_path: Path) -> None:
    model = Fork()
    hook = smd.Hook(tmp_path, save_config=EVERY, include_regex=["left", "right_output"])
    hook.register_module(model)
    for _ in range(6):
        model(tensor(1))
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert {name: trial.tensor(name).steps() for name in trial.tensor_names()} == {
        "left_input_0": [0, 2, 4],
        "left_output_0": [0, 2, 4],
        "right_output_a": [1],
        "right_output_b": [3, 5],
    }


def test_compile_wrappers_are_not_part_of_a_path() -> None:
    assert plain_path("_orig_mod.blocks.0._orig_mod.fc") == "blocks.0.fc"
    assert plain_path("my_orig_mod.fc") == "my_orig_mod.fc"
    assert plain_path("") == ""


# ---- every tensor of a value has a name of its own

_KEYS = st.sampled_from(["a", "b", "a_0", "0", "1", "a_b"])
_VALUES = st.recursive(
    st.just("tensor") | st.none(),
    lambda children: (
        st.lists(children, max_size=3)
        | st.lists(children, max_size=3).map(tuple)
        | st.dictionaries(_KEYS, children, max_size=3)
    ),
    max_leaves=8,
)


def _filled(value: Any) -> Any:
    """The same value with tensors in place of the word."""
    if value == "tensor":
        return torch.ones(1)
    if isinstance(value, dict):
        return {key: _filled(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_filled(item) for item in value)
    return value


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_count, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_count, value))
    return int(value == "tensor")


@given(_VALUES, _VALUES)
@settings(max_examples=200, deadline=None)
def test_no_two_tensors_of_a_step_share_a_name(first: Any, second: Any) -> None:
    names = StepNames()
    found = [
        names.next("net", "output", path)
        for value in (first, second)
        for path, _ in tensors_in(_filled(value), torch.Tensor)
    ]
    assert len(found) == _count(first) + _count(second)
    assert len(set(found)) == len(found)
    assert all(name.startswith("net_output_") for name in found)
