"""Scripts in which parameters are frozen, tied, added, replaced, or change their type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.pytorch.programs.models import Net, batch, sgd
from tests.pytorch.programs.twin import (
    Watch,
    assert_same_end,
    assert_saved,
    bits,
    check_script,
    run_script,
)
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from smdebug import SaveConfig
from smdebug.pytorch import Hook
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def step(watch: Watch, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x, y = batch()
    optimizer.zero_grad()
    watch.backward(functional.cross_entropy(model(x), y))
    optimizer.step()


# ---- frozen


def test_frozen_parameters_are_saved_without_gradients(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        model.first.requires_grad_(False)
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(5):
            step(watch, model, optimizer)
        return [model]

    end = check_script(script, tmp_path)
    assert "Net_first.weight" in end.watch.seen[0]
    assert "gradient/Net_first.weight" not in end.watch.seen[0]
    assert "gradient/Net_last.weight" in end.watch.seen[0]


def test_parameters_may_be_frozen_and_unfrozen_between_steps(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        for number in range(9):
            model.first.weight.requires_grad_(number in (1, 2, 5, 8))
            model.last.requires_grad_(number not in (2, 3))
            step(watch, model, optimizer)
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    with_gradient = [number for number in seen if "gradient/Net_first.weight" in seen[number]]
    assert with_gradient == [1, 2, 5, 8]


def test_everything_frozen_is_a_step_without_gradients(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net().requires_grad_(False)
        head = nn.Linear(3, 3)
        watch.register(model)
        optimizer = sgd(head)
        for _ in range(4):
            x, y = batch()
            optimizer.zero_grad()
            functional.cross_entropy(head(model(x)), y).backward()
            optimizer.step()
        return [model, head]

    check_script(script, tmp_path)


# ---- tied


class Tied(nn.Module):
    """A language model in small: the output layer has the weights of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(torch.tanh(self.body(self.embedding(x))))
        return out


def test_tied_weights_are_saved_under_each_of_their_names(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Tied()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            x, y = torch.randint(0, 7, (5,)), torch.randint(0, 7, (5,))
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(model(x), y))
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    names = ("Tied_embedding.weight", "Tied_head.weight")
    assert {*names, *(f"gradient/{name}" for name in names)} <= set(seen[0])
    trial = create_trial(str(tmp_path / "all"))
    for prefix in ("", "gradient/"):
        one, other = (trial.tensor(prefix + name).value(2) for name in names)
        assert one.tobytes() == other.tobytes()


class Twice(nn.Module):
    """One module under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.again = self.first
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.again(torch.relu(self.first(x))))
        return out


def test_a_shared_module_has_its_parameters_under_both_names(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Twice()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            step(watch, model, optimizer)
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert {"gradient/Twice_first.weight", "gradient/Twice_again.weight"} <= set(seen[0])
    # It is one module, called twice.
    assert {"first_output_0", "first_output_1"} <= set(seen[0])


# ---- accumulated


@pytest.mark.parametrize("to_none", [True, False])
def test_accumulated_gradients_are_saved_one_backward_pass_at_a_time(
    tmp_path: Path, to_none: bool
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        for number in range(8):
            x, y = batch()
            watch.backward(functional.cross_entropy(model(x), y) / 4)
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert list(seen) == list(range(8))


def test_of_two_backward_passes_of_a_step_the_last_one_counts(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            x, y = batch()
            out = model(x)
            watch.backward(functional.cross_entropy(out, y), retain_graph=True)
            watch.backward(3 * out.square().mean())
            optimizer.step()
            optimizer.zero_grad()
        return [model]

    check_script(script, tmp_path)


def test_two_backward_passes_with_different_parameters_save_both(tmp_path: Path) -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.Linear(4, 3)
            self.right = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.left(x), self.right(x)

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Heads()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            x, y = batch()
            left, right = model(x)
            watch.backward(functional.cross_entropy(left, y))
            watch.backward(functional.cross_entropy(right, y))
            optimizer.step()
            optimizer.zero_grad()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert {"gradient/Heads_left.weight", "gradient/Heads_right.weight"} <= set(seen[0])


def test_backward_passes_of_several_forward_passes_belong_to_the_last_step(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(3):
            losses = [functional.cross_entropy(model(x), y) for x, y in (batch(), batch())]
            optimizer.zero_grad()
            watch.backward(losses[0] + losses[1])
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert [number for number in seen if "gradient/Net_last.bias" in seen[number]] == [1, 3, 5]


def test_a_gradient_penalty_trains_and_is_saved(tmp_path: Path) -> None:
    """Two backward passes, one by `torch.autograd.grad(create_graph=True)` to the inputs."""

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            x, y = batch()
            x.requires_grad_()
            out = model(x)
            (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            loss = functional.cross_entropy(out, y) + (slope.norm(2, 1) - 1).square().mean()
            optimizer.zero_grad()
            watch.backward(loss)
            optimizer.step()
        return [model]

    check_script(script, tmp_path)


def test_backward_with_create_graph_saves_the_last_gradient(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
        watch.register(model)
        optimizer = sgd(model)
        parameters = list(model.parameters())
        for _ in range(4):
            x, _ = batch()
            loss = model(x).square().mean()
            slopes = torch.autograd.grad(loss, parameters, create_graph=True)
            penalty = sum(slope.square().sum() for slope in slopes)
            assert isinstance(penalty, torch.Tensor)
            optimizer.zero_grad()
            watch.backward(loss + 0.1 * penalty)
            optimizer.step()
        return [model]

    check_script(script, tmp_path)


def test_gradients_are_saved_before_they_are_clipped(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            x, y = batch()
            optimizer.zero_grad()
            watch.backward(100 * functional.cross_entropy(model(x), y))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert seen[0]["gradient/Net_last.weight"].norm() > 0.1


def test_gradients_changed_by_the_scripts_own_tensor_hooks_are_saved_as_autograd_has_them(
    tmp_path: Path,
) -> None:
    """The script's own hook was there first: what autograd passes on is what it returned."""

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        model.last.weight.register_hook(lambda gradient: gradient * 0.5)
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            step(watch, model, optimizer)
        return [model]

    check_script(script, tmp_path)


def test_optimizer_steps_inside_the_backward_pass(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizers = {
            parameter: torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
            for parameter in model.parameters()
        }

        def apply(parameter: torch.Tensor) -> None:
            assert isinstance(parameter, nn.Parameter)
            optimizers[parameter].step()
            parameter.grad = None

        handles = [
            parameter.register_post_accumulate_grad_hook(apply) for parameter in model.parameters()
        ]
        for _ in range(5):
            x, y = batch()
            watch.backward(functional.cross_entropy(model(x), y))
        for handle in handles:
            handle.remove()
        return [model]

    check_script(script, tmp_path)


class Branches(nn.Module):
    """One of two branches is used."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 3)
        self.right = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, left: bool) -> torch.Tensor:
        out: torch.Tensor = self.left(x) if left else self.right(x)
        return out


def test_a_parameter_that_was_not_used_has_no_gradient_at_that_step(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Branches()
        watch.register(model)
        optimizer = sgd(model)
        for number in range(7):
            x, y = batch()
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(model(x, number % 3 != 0), y))
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert [n for n in seen if "gradient/Branches_right.weight" in seen[n]] == [0, 3, 6]
    assert [n for n in seen if "left_output_0" in seen[n]] == [1, 2, 4, 5]


def test_sparse_gradients_are_saved_dense(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, 3))
        watch.register(model)
        sparse = torch.optim.SparseAdam(model[0].parameters(), lr=0.1)
        dense = torch.optim.SGD(model[1].parameters(), lr=0.1)
        for _ in range(5):
            x, y = torch.randint(0, 9, (5,)), torch.randint(0, 3, (5,))
            sparse.zero_grad()
            dense.zero_grad()
            watch.backward(functional.cross_entropy(model(x), y))
            sparse.step()
            dense.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert seen[0]["gradient/Sequential_0.weight"].is_sparse


# ---- added, replaced, made later


def test_parameters_and_modules_may_be_added_later(tmp_path: Path) -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4)])
            self.last = nn.Linear(4, 3)
            self.scale: nn.Parameter | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.relu(layer(x))
            out: torch.Tensor = self.last(x)
            return out if self.scale is None else out * self.scale

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Growing()
        watch.register(model)
        for number in range(8):
            if number in (2, 5):
                model.layers.append(nn.Linear(4, 4))
                watched(watch, model.layers[-1], f"layers.{len(model.layers) - 1}")
            if number == 4:
                model.scale = nn.Parameter(torch.ones(3))
            step(watch, model, torch.optim.SGD(model.parameters(), lr=0.1))
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert [n for n in seen if "gradient/Growing_layers.1.weight" in seen[n]] == [2, 3, 4, 5, 6, 7]
    assert [n for n in seen if "layers.2_output_0" in seen[n]] == [5, 6, 7]
    assert [n for n in seen if "gradient/Growing_scale" in seen[n]] == [4, 5, 6, 7]


def test_a_module_may_be_replaced(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        old = model.last
        for number in range(6):
            if number == 3:
                model.last = nn.Linear(6, 3, bias=False)
                watched(watch, model.last, "last")
            step(watch, model, torch.optim.SGD(model.parameters(), lr=0.1))
        return [model, old]

    seen = check_script(script, tmp_path).watch.seen
    assert [n for n in seen if "gradient/Net_last.bias" in seen[n]] == [0, 1, 2]


def test_a_parameter_may_be_replaced_by_one_of_another_shape(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        for number in range(6):
            if number == 3:
                with torch.no_grad():
                    model.last.weight = nn.Parameter(torch.randn(7, 6))
                    model.last.bias = nn.Parameter(torch.randn(7))
            step(watch, model, torch.optim.SGD(model.parameters(), lr=0.1))
        return [model]

    check_script(script, tmp_path)


def test_the_data_of_a_parameter_may_get_another_shape(tmp_path: Path) -> None:
    """`parameter.data = ...` keeps the object: pruning scripts do this."""

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        for number in range(6):
            if number == 3:
                for parameter, size in ((model.last.weight, (9, 6)), (model.last.bias, (9,))):
                    parameter.grad = None
                    parameter.data = torch.randn(size)
            step(watch, model, torch.optim.SGD(model.parameters(), lr=0.1))
        return [model]

    check_script(script, tmp_path)


def watched(watch: Watch, module: nn.Module, path: str) -> None:
    """Makes the witness see a module that was added."""
    if watch.witness:
        watch._attach_module(module, path)


def test_lazy_modules_are_saved_after_their_initialization(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(3))
        watch.register(model)
        for number in range(4):
            x, y = batch()
            loss = functional.cross_entropy(model(x), y)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.zero_grad()
            watch.backward(loss)
            if number == 0 and watch.witness:
                # Before their first forward pass there was nothing to observe.
                for name in [name for name in watch.seen[0] if name.startswith("gradient")]:
                    watch.forget(name)
            optimizer.step()
        return [model]

    bare = run_script(script, Watch())
    hook = Hook(tmp_path, save_all=True, save_config=SaveConfig(save_interval=1), on_error="raise")
    assert_same_end(bare, run_script(script, Watch(hook)))
    trial = create_trial(str(tmp_path))
    weights = trial.tensor("Sequential_0.weight")
    assert weights.steps() == [1, 2, 3]
    assert weights.shape(1) == (5, 4)
    assert trial.tensor("gradient/Sequential_2.weight").steps()[-3:] == [1, 2, 3]
    assert trial.tensor("0_output_0").steps() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["weight_norm", "orthogonal", "spectral_norm"])
def test_parametrized_modules_train_and_their_own_parameters_are_saved(
    tmp_path: Path, kind: str
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        getattr(parametrizations, kind)(model.first)
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            step(watch, model, optimizer)
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert any("first.parametrizations.weight.original" in name for name in seen[0])


# ---- types


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_models_of_other_types_are_saved_in_their_type(tmp_path: Path, dtype: torch.dtype) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net().to(dtype)
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            x, y = batch()
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(model(x.to(dtype)), y))
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert seen[3]["gradient/Net_first.weight"].dtype is dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_type_of_a_model_may_change_in_the_middle_of_training(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        for number in range(6):
            kind = dtype if number >= 3 else torch.float32
            if number == 3:
                model.to(dtype)
            x, y = batch()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(model(x.to(kind)), y))
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    types = [seen[number]["gradient/Net_first.weight"].dtype for number in range(6)]
    assert types == [torch.float32] * 3 + [dtype] * 3


class Quantised(nn.Module):
    """Frozen weights in eight bits that are widened when they are used, and an adapter."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.packed = nn.Parameter(torch.randn(3, 4).to(dtype), requires_grad=False)
        self.weight_scale = nn.Parameter(torch.tensor(0.5), requires_grad=False)
        self.adapter = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.packed.to(torch.float32) * self.weight_scale
        out: torch.Tensor = functional.linear(x, wide) + self.adapter(x)
        return out


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8])
def test_weights_of_eight_bits_are_saved_in_their_type(tmp_path: Path, dtype: torch.dtype) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Quantised(dtype)
        watch.register(model)
        optimizer = torch.optim.SGD(model.adapter.parameters(), lr=0.1)
        for _ in range(4):
            step(watch, model, optimizer)
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    found = create_trial(str(tmp_path / "all")).tensor("Quantised_packed").value(0)
    assert found.dtype.name == str(dtype).removeprefix("torch.")
    assert found.tobytes() == bits(seen[0]["Quantised_packed"])[2]


def test_under_autocast_gradients_have_the_type_of_the_weights(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            x, y = batch()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            watch.backward(loss)
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert seen[0]["first_output_0"].dtype is torch.bfloat16
    assert seen[0]["gradient/Net_first.weight"].dtype is torch.float32


def test_with_a_gradient_scaler_gradients_are_saved_scaled_as_autograd_has_them(
    tmp_path: Path,
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        scaler: Any = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(4):
            x, y = batch()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            watch.backward(scaler.scale(loss))
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert seen[0]["gradient/Net_last.bias"].abs().max() > 10


def test_both_formats_have_the_same_values(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            step(watch, model, optimizer)
        return [model]

    truth = run_script(script, Watch(witness=True))
    hook = Hook(
        tmp_path, save_all=True, save_config=SaveConfig(save_interval=1), format="v1",
        on_error="raise",
    )  # fmt: skip
    assert_same_end(truth, run_script(script, Watch(hook)))
    assert_saved(create_trial(str(tmp_path)), truth.watch.seen)
