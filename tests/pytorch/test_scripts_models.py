"""Scripts with several models, losses of all kinds, and modules that do unusual things."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from tests.pytorch.programs.models import Net, batch, sgd
from tests.pytorch.programs.twin import (
    Watch,
    assert_same_end,
    assert_saved,
    check_script,
    run_script,
)
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from smdebug import SaveConfig
from smdebug.mode_keys import ModeKeys
from smdebug.pytorch import Hook
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


def step(watch: Watch, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x, y = batch()
    optimizer.zero_grad()
    watch.backward(functional.cross_entropy(model(x), y))
    optimizer.step()


def every_step(out_dir: Path, **options: Any) -> Hook:
    return Hook(
        out_dir, save_all=True, save_config=SaveConfig(save_interval=1), on_error="raise", **options
    )


# ---- several models, several losses


class Generator(nn.Sequential):
    pass


class Discriminator(nn.Sequential):
    pass


def gan(watch: Watch) -> Iterable[nn.Module]:
    generator = Generator(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 4))
    discriminator = Discriminator(nn.Linear(4, 6), nn.LeakyReLU(0.2), nn.Linear(6, 1))
    loss = nn.BCEWithLogitsLoss()
    watch.register(generator)
    watch.register(discriminator)
    watch.register_loss(loss)
    optimizers = [torch.optim.Adam(each.parameters()) for each in (generator, discriminator)]
    for _ in range(3):
        real, fake = torch.randn(5, 4), generator(torch.randn(5, 2))
        optimizers[1].zero_grad()
        watch.backward(loss(discriminator(real), torch.ones(5, 1)))
        watch.backward(loss(discriminator(fake.detach()), torch.zeros(5, 1)))
        optimizers[1].step()
        optimizers[0].zero_grad()
        watch.backward(loss(discriminator(fake), torch.ones(5, 1)))
        optimizers[0].step()
    return [generator, discriminator]


def test_a_gan_has_a_step_for_each_forward_of_each_model(tmp_path: Path) -> None:
    seen = check_script(gan, tmp_path).watch.seen
    assert len(seen) == 12
    generators = [number for number in seen if "gradient/Generator_0.weight" in seen[number]]
    assert generators == [3, 7, 11]
    # Weights of both are there at every step.
    assert all({"Generator_0.weight", "Discriminator_0.weight"} <= set(seen[n]) for n in seen)


def test_two_models_of_one_class_are_distinguished(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        online, target = Net(), Net()
        watch.register(online)
        watch.register(target)
        optimizer = sgd(online)
        for _ in range(3):
            x, _ = batch()
            with torch.no_grad():
                aim = target(x)
            optimizer.zero_grad()
            watch.backward(functional.mse_loss(online(x), aim))
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                    slow.lerp_(fast, 0.1)
        return [online, target]

    seen = check_script(script, tmp_path).watch.seen
    assert {"Net_last.weight", "Net_1_last.weight", "Net_1_last_output_0"} <= set(seen[0])
    assert {"gradient/Net_last.weight", "last_output_0"} <= set(seen[1])
    assert not any(name.startswith("gradient/Net_1") for each in seen.values() for name in each)


def test_several_losses_of_one_class_are_counted_through(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        one, other, third = nn.MSELoss(), nn.MSELoss(), nn.L1Loss()
        watch.register(model)
        for loss in (one, other, third):
            watch.register_loss(loss)
        optimizer = sgd(model)
        for _ in range(4):
            x, _ = batch()
            out = model(x)
            optimizer.zero_grad()
            watch.backward(
                one(out[:, 0], x[:, 0]) + other(out[:, 1], x[:, 1]) + third(out[:, 2], x[:, 2])
            )
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert {"MSELoss_output_0", "MSELoss_output_1", "L1Loss_output_0"} <= set(seen[0])


def test_the_value_of_a_loss_function_is_recorded_or_saved(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            x, y = batch()
            loss = functional.cross_entropy(model(x), y)
            if watch.hook is not None:
                watch.hook.record_tensor_value("loss", loss)
                watch.hook.save_tensor("loss", loss, "losses")
            watch.saw("loss_output_0", loss)
            watch.saw("loss", loss)
            optimizer.zero_grad()
            watch.backward(loss)
            optimizer.step()
        return [model]

    truth = run_script(script, Watch(witness=True))
    assert_same_end(truth, run_script(script, Watch(every_step(tmp_path))))
    trial = create_trial(str(tmp_path))
    assert_saved(trial, truth.watch.seen)
    assert {"loss", "loss_output_0"} <= set(trial.tensor_names(collection="losses"))


def test_a_loss_that_is_part_of_the_model_is_saved_under_its_path(tmp_path: Path) -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 3)
            self.loss = nn.CrossEntropyLoss()

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.loss(self.body(x), y)
            return out

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = WithLoss()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            optimizer.zero_grad()
            watch.backward(model(*batch()))
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert {"loss_output_0", "loss_input_0", "loss_input_1"} <= set(seen[0])


class Teacher(nn.Sequential):
    pass


class Student(nn.Module):
    """Calls another model that is registered itself."""

    def __init__(self, teacher: nn.Module) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.hidden = [teacher]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            guide = self.hidden[0](x)
        out: torch.Tensor = self.body(x) + guide
        return out


def test_a_model_that_calls_another_registered_model_trains_and_its_gradients_are_saved(
    tmp_path: Path,
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        teacher = Teacher(nn.Linear(4, 3))
        model = Student(teacher)
        watch.register(teacher)
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(3):
            step(watch, model, optimizer)
        return [model, teacher]

    bare = run_script(script, Watch())
    truth = run_script(script, Watch(witness=True))
    assert_same_end(bare, run_script(script, Watch(every_step(tmp_path))))
    trial = create_trial(str(tmp_path))
    # The outer forward pass begins a step, the inner one the next.
    assert trial.steps() == [0, 1, 2, 3, 4, 5]
    for number in (1, 3, 5):
        for name in ("gradient/Student_body.weight", "Student_body.weight", "Teacher_0.weight"):
            found = trial.tensor(name).value(number)
            expected = truth.watch.seen[number][name]
            assert found.tobytes() == expected.numpy().tobytes()
        assert trial.tensor("0_output_0").steps() == [1, 3, 5]


# ---- what models take and return


@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]
    note: str = "text"


class Output(OrderedDict[str, Any]):
    """In the manner of `transformers.ModelOutput`: a dict with attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


class Pair(NamedTuple):
    logits: torch.Tensor
    hidden: torch.Tensor


def as_dict(logits: torch.Tensor, hidden: torch.Tensor) -> Any:
    return {"logits": logits, "inner": {"hidden": hidden}, "count": 3}


def as_dataclass(logits: torch.Tensor, hidden: torch.Tensor) -> Any:
    return Result(logits, (hidden, hidden * 2))


def as_output(logits: torch.Tensor, hidden: torch.Tensor) -> Any:
    return Output(logits=logits, hidden=hidden, cache=None)


def as_pair(logits: torch.Tensor, hidden: torch.Tensor) -> Any:
    return Pair(logits, hidden)


def as_tuple(logits: torch.Tensor, hidden: torch.Tensor) -> Any:
    return logits, [hidden, None], "text"


RETURNS: list[tuple[Callable[..., Any], Callable[[Any], Any], list[str]]] = [
    (as_dict, lambda out: out["logits"], ["logits", "inner_hidden"]),
    (as_dataclass, lambda out: out.logits, ["logits", "hidden_0", "hidden_1"]),
    (as_output, lambda out: out.logits, ["logits", "hidden"]),
    (as_pair, lambda out: out.logits, ["logits", "hidden"]),
    (as_tuple, lambda out: out[0], ["0", "1"]),
]


class Returning(nn.Module):
    def __init__(self, make: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)
        self.make = make

    def forward(self, x: torch.Tensor) -> Any:
        hidden = torch.relu(self.first(x))
        return self.make(self.last(hidden), hidden)


@pytest.mark.parametrize(
    ("make", "logits", "names"), RETURNS, ids=[make.__name__ for make, _, _ in RETURNS]
)
def test_models_may_return_anything_that_holds_tensors(
    tmp_path: Path, make: Callable[..., Any], logits: Callable[[Any], Any], names: list[str]
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Returning(make)
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(3):
            x, y = batch()
            out = model(x)
            values = [logits(out), torch.relu(watch.seen[watch.step]["first_output_0"])] if (
                watch.witness) else []  # fmt: skip
            for name, value in zip(names, values, strict=False):
                watch.saw(f"Returning_output_{name}", value)
            if watch.witness and make is as_dataclass:
                watch.saw("Returning_output_hidden_1", values[1] * 2)
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(logits(out), y))
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert {f"Returning_output_{name}" for name in names} <= set(seen[0])


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = Head()

    def forward(self, *, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        out: torch.Tensor = self.body(x=ids, scale=2.0)
        return out if mask is None else out * mask


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        out: torch.Tensor = self.linear(x) * scale
        return out


def test_inputs_given_by_name_are_saved_by_name(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Keywords()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            x, y = batch()
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(model(ids=x, mask=torch.ones(5, 3)), y))
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert {"Keywords_input_ids", "Keywords_input_mask", "body_input_x"} <= set(seen[0])


def test_activations_changed_in_place_are_saved_as_they_were(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = nn.Sequential(
            nn.Linear(4, 6), nn.Dropout(0.5, inplace=True), nn.ReLU(inplace=True),
            nn.Linear(6, 3), nn.Hardtanh(inplace=True),
        )  # fmt: skip
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            step(watch, model, optimizer)
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert seen[0]["0_output_0"].min() < 0
    assert seen[0]["1_output_0"].min() < 0
    assert seen[0]["2_output_0"].min() == 0


def test_inputs_that_the_script_changes_after_the_forward_pass_are_saved_as_they_were(
    tmp_path: Path,
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        x = torch.empty(5, 4)
        for _ in range(4):
            # One buffer for all batches, as loaders with pinned memory have it.
            x.copy_(torch.randn(5, 4))
            out = model(x)
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(out, torch.randint(0, 3, (5,))))
            optimizer.step()
            x.zero_()
            out.data.zero_()
        return [model]

    check_script(script, tmp_path)


# ---- recomputed forward passes


class Blocks(nn.Module):
    def __init__(self, kind: str, reentrant: bool) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)))
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(4, 3)
        self.kind, self.reentrant = kind, reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "blocks":
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        elif self.kind == "sequential":
            x = checkpoint_sequential(self.blocks, 2, x, use_reentrant=self.reentrant)
        else:
            for block in self.blocks:
                x = block(x)
        out: torch.Tensor = self.last(self.drop(x))
        return out


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("kind", ["blocks", "sequential", "root"])
def test_recomputed_forward_pass_is_neither_a_step_nor_a_second_activation(
    tmp_path: Path, kind: str, reentrant: bool
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        # The witness looks at the same model without checkpoints: its numbers are the same.
        used = "none" if watch.witness else kind
        model = Blocks(used, reentrant)
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            x, y = batch()
            x.requires_grad_(reentrant)
            out = checkpoint(model, x, use_reentrant=reentrant) if used == "root" else model(x)
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(out, y))
            optimizer.step()
        return [model]

    end = check_script(script, tmp_path)
    assert end.watch.step == 3


def test_recomputation_of_a_root_next_to_a_second_model_is_not_a_step(tmp_path: Path) -> None:
    class Tail(nn.Sequential):
        pass

    def script(watch: Watch) -> Iterable[nn.Module]:
        model, tail = Net(), Tail(nn.Linear(3, 3))
        watch.register(model)
        watch.register(tail)
        optimizer = sgd(model, tail)
        for _ in range(4):
            x, y = batch()
            out = model(x) if watch.witness else checkpoint(model, x, use_reentrant=False)
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(tail(out), y))
            optimizer.step()
        return [model, tail]

    assert check_script(script, tmp_path).watch.step == 7


# ---- evaluation between training


@pytest.mark.parametrize("first", [ModeKeys.TRAIN, ModeKeys.EVAL])
@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_evaluation_and_training_are_saved_side_by_side(
    tmp_path: Path, guard: Callable[[], Any], first: ModeKeys
) -> None:
    def evaluate(watch: Watch, model: nn.Module) -> None:
        watch.set_mode(ModeKeys.EVAL)
        model.eval()
        with guard():
            for _ in range(3):
                model(batch()[0])
        model.train()
        watch.set_mode(ModeKeys.TRAIN)

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        watch.set_mode(ModeKeys.TRAIN)
        if first == ModeKeys.EVAL:
            evaluate(watch, model)
        for _ in range(2):
            for _ in range(4):
                step(watch, model, optimizer)
            evaluate(watch, model)
        return [model]

    modes = check_script(script, tmp_path).watch.modes
    assert {mode for mode, _ in modes.values()} == {ModeKeys.TRAIN, ModeKeys.EVAL}
    trial = create_trial(str(tmp_path / "all"))
    count = 9 if first == ModeKeys.EVAL else 6
    assert trial.steps(mode=ModeKeys.EVAL) == list(range(count))
    assert trial.steps(mode=ModeKeys.TRAIN) == list(range(8))


def test_the_hook_may_close_inside_inference_mode(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net()
    with torch.inference_mode():
        hook = every_step(tmp_path)
        hook.register_module(model)
        expected = model(batch()[0])
        hook.save_tensor("mine", expected * 2)
        hook.close()
    trial = create_trial(str(tmp_path))
    assert trial.tensor("Net_output_0").value(0).tobytes() == expected.numpy().tobytes()
    assert trial.tensor("mine").value(0).tobytes() == (expected * 2).numpy().tobytes()


# ---- kinds of modules


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.cell = kind(4, 5, num_layers=2, batch_first=True, **options)
        self.last = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, _ = self.cell(x)
        last: torch.Tensor = self.last(out[:, -1])
        return last


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM], ids=lambda kind: kind.__name__)
def test_recurrent_networks_return_tuples(tmp_path: Path, kind: type[nn.RNNBase]) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Recurrent(kind, dropout=0.2)
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            x, y = torch.randn(5, 6, 4), torch.randint(0, 3, (5,))
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(model(x), y))
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert "gradient/Recurrent_cell.weight_hh_l1" in seen[0]
    assert ("cell_output_2" in seen[0]) == (kind is nn.LSTM)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, _ = self.attention(x, x, x, need_weights=True)
        last: torch.Tensor = self.last(out.mean(1))
        return last


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last: torch.Tensor = self.last(self.encoder(x).mean(1))
        return last


@pytest.mark.parametrize("kind", [Attention, Encoder])
def test_attention_trains_as_without_the_hook(tmp_path: Path, kind: type[nn.Module]) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = kind()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            x, y = torch.randn(5, 6, 4), torch.randint(0, 3, (5,))
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(model(x), y))
            optimizer.step()
        return [model]

    check_script(script, tmp_path)


@pytest.mark.parametrize("kind", [Attention, Encoder])
@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_evaluation_of_attention_gives_the_same_numbers_with_the_hook(
    tmp_path: Path, kind: type[nn.Module], guard: Callable[[], Any]
) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    x = torch.randn(5, 6, 4)
    with guard():
        expected = model(x)
        hook = Hook(
            tmp_path, include_collections=["weights"], include_regex="last_output",
            save_config=SaveConfig(save_steps=[0, 2], start_step=5), on_error="raise",
        )  # fmt: skip
        hook.register_module(model)
        for _ in range(4):
            # At steps without hooks on modules the fast path is free to be taken.
            torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-6)
        hook.close()
        assert torch.equal(model(x), expected)
    trial = create_trial(str(tmp_path))
    assert trial.tensor("last_output_0").steps() == [0, 2]
    weight = trial.tensor(f"{kind.__name__}_last.weight").value(2)
    assert weight.tobytes() == model.last.weight.detach().numpy().tobytes()


class Unrolled(nn.Module):
    """One module, called several times."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(4, 4)
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, times: int) -> torch.Tensor:
        for _ in range(times):
            x = torch.tanh(self.cell(x))
        out: torch.Tensor = self.last(x)
        return out


def test_a_module_called_several_times_has_numbered_activations(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Unrolled()
        watch.register(model)
        optimizer = sgd(model)
        for number in range(6):
            x, y = batch()
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(model(x, 1 + number % 4), y))
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert [n for n in seen if "cell_output_3" in seen[n]] == [3]


class Affine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x + 1


def test_a_model_without_parameters_has_steps_and_activations(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Affine()
        watch.register(model)
        for _ in range(4):
            model(torch.randn(2, 2))
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert set(seen[0]) == {"Affine_input_0", "Affine_output_0"}


def test_buffers_are_not_saved_and_not_touched(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            optimizer.zero_grad()
            out = model(torch.randn(5, 1, 4, 4))
            watch.backward(functional.cross_entropy(out, torch.randint(0, 3, (5,))))
            optimizer.step()
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert "Sequential_1.running_mean" not in seen[0]
    assert not create_trial(str(tmp_path / "all")).tensor_names(regex="running")


# ---- torch.func, tracing, export


def trained_as_usual(watch: Watch, model: nn.Module) -> None:
    """What is saved after something unusual is what it always is."""
    optimizer = sgd(model)
    for _ in range(2):
        step(watch, model, optimizer)


def check_usual_steps(script: Callable[[Watch], Iterable[nn.Module]], folder: Path) -> None:
    """The last two steps of a script have to be saved as they are when nothing came before."""
    bare = run_script(script, Watch())
    truth = run_script(script, Watch(witness=True))
    assert_same_end(bare, run_script(script, Watch(every_step(folder))))
    trial = create_trial(str(folder))
    last = truth.watch.step
    # How often a transform calls a model is its own affair; the last step is the last.
    shift = trial.steps()[-1] - last
    for number in (last - 1, last):
        expected = truth.watch.seen[number]
        assert trial.tensor_names(step=number + shift) == sorted(expected)
        for name, tensor in expected.items():
            found = trial.tensor(name).value(number + shift)
            assert found.tobytes() == tensor.numpy().tobytes(), name


def test_functional_calls_on_a_hooked_model_are_unchanged(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        trained = {key: value.detach().clone() for key, value in model.named_parameters()}

        def loss_of(values: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> Any:
            return functional.cross_entropy(torch.func.functional_call(model, values, (x,)), y)

        # A witness would meet the tensors of the transform itself.
        if not watch.witness:
            watch.register(model)
        for _ in range(4):
            slopes = torch.func.grad(loss_of)(trained, *batch())
            trained = {key: value - 0.1 * slopes[key] for key, value in trained.items()}
        model.load_state_dict(trained)
        if watch.witness:
            watch.register(model)
        trained_as_usual(watch, model)
        return [model]

    check_usual_steps(script, tmp_path)


@pytest.mark.parametrize("transform", ["vmap", "jvp", "per_sample", "hessian"])
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_transforms_of_a_hooked_model_are_unchanged(tmp_path: Path, transform: str) -> None:
    def transformed(model: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
        values = {key: each.detach() for key, each in model.named_parameters()}

        def size(one: dict[str, torch.Tensor], row: torch.Tensor) -> Any:
            return torch.func.functional_call(model, one, (row,)).square().sum()

        if transform == "vmap":
            return torch.func.vmap(model)(x)
        if transform == "jvp":
            return torch.func.jvp(model, (x,), (torch.ones_like(x),))[1]
        if transform == "hessian":
            return torch.func.hessian(lambda row: model(row).square().sum())(x[0])
        return torch.func.vmap(torch.func.grad(size), (None, 0))(values, x)["0.weight"]

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        if not watch.witness:
            watch.register(model)
        for _ in range(3):
            x, _ = batch()
            with torch.no_grad():
                model[0].weight.add_(transformed(model, x).mean())
        if watch.witness:
            watch.register(model)
        trained_as_usual(watch, model)
        return [model]

    check_usual_steps(script, tmp_path)


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_hooked_model_is_traced_like_the_original(tmp_path: Path, steps: int) -> None:
    def traced(hook: Hook | None) -> Any:
        torch.manual_seed(0)
        model = Net().eval()
        if hook is not None:
            hook.register_module(model)
        for _ in range(steps):
            step(Watch(), model, sgd(model))
        x, _ = batch()
        found: Any = torch.jit.trace(model, (x,))
        assert torch.equal(found(x), model(x))
        step(Watch(), model, sgd(model))
        # Names of types are numbered through for the process.
        return re.sub(r"___torch_mangle_\d+\.", "", str(found.inlined_graph))

    with every_step(tmp_path) as hook:
        assert traced(hook) == traced(None)
    trial = create_trial(str(tmp_path))
    assert trial.tensor("gradient/Net_last.bias").steps()[-1] == trial.steps()[-1]


@pytest.mark.parametrize("steps", [0, 2])
def test_hooked_model_is_exported_like_the_original(tmp_path: Path, steps: int) -> None:
    def exported(hook: Hook | None) -> str:
        torch.manual_seed(0)
        model = Net().eval()
        if hook is not None:
            hook.register_module(model)
        for _ in range(steps):
            step(Watch(), model, sgd(model))
        x, _ = batch()
        found = torch.export.export(model, (x,))
        assert torch.equal(found.module()(x), model(x))
        step(Watch(), model, sgd(model))
        return str(found.graph)

    with every_step(tmp_path) as hook:
        assert exported(hook) == exported(None)
    trial = create_trial(str(tmp_path))
    assert trial.tensor("gradient/Net_last.bias").steps()[-1] == trial.steps()[-1]
