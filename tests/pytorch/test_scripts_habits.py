"""Scripts that use what else torch has for training: averages, pruning, closures, modes, hooks."""

from __future__ import annotations

import contextlib
import copy
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.pytorch.programs.models import Net, batch, plain_step, sgd
from tests.pytorch.programs.twin import Watch, check_script, hooks_left
from torch import nn
from torch.nn import functional
from torch.nn.utils import prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from smdebug import SaveConfig
from smdebug.pytorch import Hook
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


def step(watch: Watch, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x, y = batch()
    optimizer.zero_grad()
    watch.backward(functional.cross_entropy(model(x), y))
    optimizer.step()


def test_averaged_model_is_a_different_model(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        if watch.witness:
            # Made before the witness is there: a copy would take its hooks along.
            average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
            watch.register(model)
        else:
            watch.register(model)
            average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        optimizer = sgd(model)
        for _ in range(4):
            step(watch, model, optimizer)
            average.update_parameters(model)
            with torch.no_grad():
                average(batch()[0])
        twin = Net()
        twin.load_state_dict(average.module.state_dict())
        return [model, twin]

    assert check_script(script, tmp_path).watch.step == 3


def test_pruned_models_are_saved_with_the_parameters_that_pruning_made(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        for number in range(6):
            if number == 2:
                prune.random_unstructured(model.first, "weight", amount=0.5)
            if number == 4:
                prune.remove(model.first, "weight")
            step(watch, model, torch.optim.SGD(model.parameters(), lr=0.1))
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert [n for n in seen if "gradient/Net_first.weight_orig" in seen[n]] == [2, 3]
    assert [n for n in seen if "gradient/Net_first.weight" in seen[n]] == [0, 1, 4, 5]


def test_an_optimizer_with_a_closure_makes_a_step_of_each_call(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
        watch.register(model)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
        for _ in range(3):
            x, y = batch()

            def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(x), y)
                watch.backward(loss)
                return loss

            optimizer.step(closure)
        return [model]

    assert check_script(script, tmp_path).watch.step > 3


@contextlib.contextmanager
def wide_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def elsewhere_by_default() -> Iterator[None]:
    with torch.device("meta"):
        yield


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def anomalies() -> Iterator[None]:
    with torch.autograd.detect_anomaly():
        yield


@contextlib.contextmanager
def saved_on_disk() -> Iterator[None]:
    with torch.autograd.graph.save_on_cpu():
        yield


@contextlib.contextmanager
def profiled() -> Iterator[None]:
    with torch.autograd.profiler.profile():
        yield


WITHIN = [wide_by_default, elsewhere_by_default, deterministic, anomalies, saved_on_disk, profiled]


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled:UserWarning")
@pytest.mark.parametrize("within", WITHIN)
def test_torch_modes_do_not_change_what_is_saved(
    tmp_path: Path, within: Callable[[], contextlib.AbstractContextManager[None]]
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        optimizer = sgd(model)
        watch.register(model)
        batches = [batch() for _ in range(4)]
        with within():
            for x, y in batches:
                optimizer.zero_grad()
                watch.backward(functional.cross_entropy(model(x), y))
                optimizer.step()
        return [model]

    check_script(script, tmp_path)


def test_hooks_of_the_script_still_work(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        calls: list[str] = []

        def double(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
            calls.append("forward")
            return output * 2

        def shift(module: nn.Module, args: Any) -> Any:
            calls.append("pre")
            return (args[0] + 1,)

        def slope(module: nn.Module, inputs: Any, outputs: Any) -> Any:
            calls.append("backward")
            return tuple(None if each is None else each * 0.5 for each in inputs)

        model.first.register_forward_hook(double)
        model.last.register_forward_pre_hook(shift)
        model.last.register_full_backward_hook(slope)
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            step(watch, model, optimizer)
        # The witness computes gradients once more.
        assert calls == ["forward", "pre", *["backward"] * (1 + watch.witness)] * 4
        return [model]

    check_script(script, tmp_path)


def test_global_module_hooks_still_work(
    tmp_path: Path,
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        calls = [0]

        def count(module: nn.Module, args: Any, output: Any) -> None:
            calls[0] += 1

        watch.register(model)
        optimizer = sgd(model)
        handle = nn.modules.module.register_module_forward_hook(count)
        try:
            for _ in range(4):
                step(watch, model, optimizer)
        finally:
            handle.remove()
        assert calls == [4 * 5]
        return [model]

    check_script(script, tmp_path)


class Straight(torch.autograd.Function):
    """Rounds in the forward pass, passes gradients straight through."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> torch.Tensor:
        return slope


class Rounded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: Any = Straight.apply(self.first(x) * 3)
        out: torch.Tensor = self.last(hidden)
        return out


def test_gradients_of_custom_autograd_functions_are_saved(
    tmp_path: Path,
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Rounded()
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(4):
            step(watch, model, optimizer)
        return [model]

    check_script(script, tmp_path)


def test_a_registered_model_may_be_part_of_a_larger_one(tmp_path: Path) -> None:
    """Only the body is registered; the head that the script puts on it is not."""

    def script(watch: Watch) -> Iterable[nn.Module]:
        body = Net()
        head = nn.Linear(3, 3)
        model = nn.Sequential(body, nn.ReLU(), head)
        watch.register(body)
        optimizer = sgd(model)
        for _ in range(4):
            step(watch, model, optimizer)
        return [model]

    seen = check_script(script, tmp_path).watch.seen
    assert not any("Sequential" in name for name in seen[0])


def test_memory_of_steps_is_released(tmp_path: Path) -> None:
    """The hook holds no graph and no activation of a step that has ended."""
    model = Net()
    hook = Hook(tmp_path, save_all=True, save_config=SaveConfig(save_interval=1), on_error="raise")
    hook.register_module(model)
    optimizer = sgd(model)
    plain_step(model, optimizer)
    out = model(batch()[0])
    node = weakref.ref(out)
    out.sum().backward()
    del out
    gc.collect()
    assert node() is None
    hook.close()


@pytest.mark.parametrize("how", ["remove", "close"])
def test_removed_model_is_not_referenced_by_the_hook(tmp_path: Path, how: str) -> None:
    model = Net()
    hook = Hook(tmp_path, save_all=True, save_config=SaveConfig(save_interval=1), on_error="raise")
    handle = hook.register_module(model)
    for _ in range(2):
        plain_step(model, sgd(model))
    kept = [weakref.ref(each) for each in (model, *model.parameters())]
    handle.remove() if how == "remove" else hook.close()
    # What was taken of the last step may still wait for the writer.
    hook.flush()
    del model
    gc.collect()
    assert [each() for each in kept if each() is not None] == []
    hook.close()


def test_many_models_one_after_the_other_are_saved_in_one_run(tmp_path: Path) -> None:
    """A search over models: each is registered, trained and taken off again."""
    hook = Hook(tmp_path, save_all=True, save_config=SaveConfig(save_interval=1), on_error="raise")
    torch.manual_seed(0)
    for width in (3, 5, 7):
        model = Net(width)
        with hook.register_module(model):
            plain_step(model, sgd(model))
        assert hooks_left(model) == []
        # What is done to it afterwards is no step.
        plain_step(copy.deepcopy(model), sgd(model))
        plain_step(model, sgd(model))
    hook.close()
    trial = create_trial(str(tmp_path))
    assert trial.steps() == [0, 1, 2]
    shapes = [trial.tensor("Net_first.weight").shape(number) for number in range(3)]
    assert shapes == [(3, 4), (5, 4), (7, 4)]
    assert trial.tensor("gradient/Net_first.weight").steps() == [0, 1, 2]
