"""Scripts that compile: nothing is compiled twice, no graph is broken, names are the eager ones."""

from __future__ import annotations

import copy
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._dynamo
import torch._dynamo.utils
from tests.pytorch.programs.models import Net, batch, sgd
from tests.pytorch.programs.twin import (
    End,
    Watch,
    assert_same_end,
    assert_saved,
    run_script,
)
from torch import nn
from torch.nn import functional

from smdebug import SaveConfig
from smdebug.mode_keys import ModeKeys
from smdebug.pytorch import Hook
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

pytestmark = [
    # torch's own, when it looks at itself.
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

STEPS = 7
SAVED = [0, 3, 6]


@pytest.fixture(autouse=True)
def _nothing_compiled_yet() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


class Backend:
    """Compiles with another backend and counts.

    Attributes:
        frames: how many graphs were compiled.
        runs: how often one of them ran.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.frames = 0
        self.runs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Any:
        self.frames += 1
        compiled: Any = torch._dynamo.lookup_backend(self.name)(graph, inputs)

        def run(*arguments: Any) -> Any:
            self.runs += 1
            return compiled(*arguments)

        # What aot_autograd returns takes its arguments in a way that has to be kept.
        if getattr(compiled, "_boxed_call", False):
            run._boxed_call = True  # type: ignore[attr-defined]
        return run


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.tanh = nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.tanh(self.inner(x))
        return out


class Calm(nn.Module):
    """Without dropout: a compiled one draws its numbers in another way than an eager one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.relu = nn.ReLU()
        self.block = Block()
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.block(self.relu(self.first(x))))
        return out


def train(watch: Watch, model: nn.Module, call: Callable[..., torch.Tensor]) -> None:
    loss_function = nn.CrossEntropyLoss()
    watch.register_loss(loss_function)
    optimizer = sgd(model)
    for _ in range(STEPS):
        x, y = batch()
        optimizer.zero_grad()
        watch.backward(loss_function(call(x), y))
        optimizer.step()


def hook_of(out_dir: Path, **options: Any) -> Hook:
    return Hook(out_dir, save_config=SaveConfig(save_interval=3), on_error="raise", **options)


def at_saved_steps(end: End) -> dict[int, dict[str, torch.Tensor]]:
    return {step: tensors for step, tensors in end.watch.seen.items() if step % 3 == 0}


def whole(model: Any, backend: Backend, fullgraph: bool) -> Any:
    return torch.compile(model, backend=backend, fullgraph=fullgraph)


def in_place(model: Any, backend: Backend, fullgraph: bool) -> Any:
    model.compile(backend=backend, fullgraph=fullgraph)
    return model


def part(model: Any, backend: Backend, fullgraph: bool) -> Any:
    model.block = torch.compile(model.block, backend=backend, fullgraph=fullgraph)
    return model


def part_in_place(model: Any, backend: Backend, fullgraph: bool) -> Any:
    model.block.compile(backend=backend, fullgraph=fullgraph)
    return model


WAYS = [whole, in_place, part, part_in_place]


def script_of(way: Callable[..., Any], backend: Backend, fullgraph: bool) -> Any:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Calm()
        if watch.witness:
            # The truth is what the eager model does.
            watch.register(model)
            train(watch, model, model)
            return [model]
        called = way(model, backend, fullgraph)
        watch.register(called)
        train(watch, model, called)
        return [plain(model)]

    return script


def plain(model: nn.Module) -> nn.Module:
    """The same parameters without what torch.compile put around parts."""
    twin = Calm()
    state = {key.replace("_orig_mod.", ""): each for key, each in model.state_dict().items()}
    twin.load_state_dict(state)
    return twin


def compiled_once(script: Any, watch: Watch, backend: Backend) -> tuple[End, int, int]:
    """Runs a script; gives how many graphs were compiled, and how often one ran."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    backend.frames = backend.runs = 0
    with torch._dynamo.config.patch(error_on_recompile=True):
        end = run_script(script, watch)
    assert not torch._dynamo.utils.counters["graph_break"]
    assert torch.compiler.is_compiling() is False
    return end, backend.frames, backend.runs


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("name", ["eager", "aot_eager"])
@pytest.mark.parametrize("way", WAYS)
def test_a_compiled_model_is_saved_as_the_eager_one(
    tmp_path: Path, way: Any, name: str, fullgraph: bool
) -> None:
    backend = Backend(name)
    script = script_of(way, backend, fullgraph)
    bare, frames, runs = compiled_once(script, Watch(), backend)
    assert (frames, runs) == (1, STEPS)
    truth = run_script(script, Watch(witness=True))
    hooked, frames, runs = compiled_once(script, Watch(hook_of(tmp_path, save_all=True)), backend)
    assert_same_end(bare, hooked)
    trial = create_trial(str(tmp_path))
    assert not trial.tensor_names(regex="_orig_mod")
    assert_saved(trial, at_saved_steps(truth))
    # Compiled once, and used at all the steps that save nothing.
    assert (frames, runs) == (1, STEPS - len(SAVED))


@pytest.mark.parametrize("name", ["eager", "aot_eager"])
@pytest.mark.parametrize("way", WAYS)
def test_steps_without_activations_run_the_compiled_graph(
    tmp_path: Path, way: Any, name: str
) -> None:
    backend = Backend(name)
    script = script_of(way, backend, True)
    bare, _, _ = compiled_once(script, Watch(), backend)
    truth = run_script(script, Watch(witness=True))
    hook = hook_of(tmp_path, include_collections=["weights", "gradients", "biases"])
    hooked, frames, runs = compiled_once(script, Watch(hook), backend)
    assert_same_end(bare, hooked)
    expected = {
        step: {
            name: tensor
            for name, tensor in tensors.items()
            if name.startswith(("Calm_first", "Calm_block", "Calm_last", "gradient/"))
            or name == "CrossEntropyLoss_output_0"
        }
        for step, tensors in at_saved_steps(truth).items()
    }
    assert_saved(create_trial(str(tmp_path)), expected)
    assert (frames, runs) == (1, STEPS)


def test_dropout_in_a_compiled_model_draws_the_same_numbers_when_gradients_are_saved(
    tmp_path: Path,
) -> None:
    backend = Backend("aot_eager")

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        called = torch.compile(model, backend=backend, fullgraph=True)
        watch.register(called)
        train(watch, model, called)
        return [model]

    bare, _, _ = compiled_once(script, Watch(), backend)
    hook = hook_of(tmp_path, include_collections=["weights", "gradients"])
    hooked, frames, _ = compiled_once(script, Watch(hook), backend)
    assert frames == 1
    assert_same_end(bare, hooked)


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_compiled_by_inductor_trains_the_same_and_saves_its_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Calm()
        called: Any = torch.compile(model, fullgraph=True)
        watch.register(called)
        train(watch, model, called)
        return [model]

    with torch._dynamo.config.patch(error_on_recompile=True):
        bare = run_script(script, Watch())
        torch._dynamo.reset()
        hook = hook_of(tmp_path / "gradients", include_collections=["weights", "gradients"])
        assert_same_end(bare, run_script(script, Watch(hook)))
        torch._dynamo.reset()
        # If activations are saved, the forward pass runs eagerly: the same except for rounding.
        everything = run_script(script, Watch(hook_of(tmp_path / "all", save_all=True)))
    for one, other in zip(bare.state[0].values(), everything.state[0].values(), strict=True):
        torch.testing.assert_close(one, other)
    truth = run_script(
        lambda watch: script_of(whole, Backend("eager"), True)(watch), Watch(witness=True)
    )
    for folder in ("gradients", "all"):
        trial = create_trial(str(tmp_path / folder))
        for step, tensors in at_saved_steps(truth).items():
            found = trial.tensor("gradient/Calm_first.weight").value(step)
            expected = tensors["gradient/Calm_first.weight"]
            torch.testing.assert_close(torch.from_numpy(found.copy()), expected)
    assert trial.tensor_names(step=3) == sorted(truth.watch.seen[3])


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("way", [whole, in_place])
def test_model_compiled_after_registration_trains_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: Any, fullgraph: bool
) -> None:
    backend = Backend("aot_eager")

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Calm()
        watch.register(model)
        called = way(model, backend, fullgraph)
        train(watch, model, called)
        return [model]

    bare, frames, runs = compiled_once(script, Watch(), backend)
    hook = hook_of(tmp_path, save_all=True)
    hooked, hooked_frames, hooked_runs = compiled_once(script, Watch(hook), backend)
    assert_same_end(bare, hooked)
    assert (hooked_frames, hooked_runs) == (frames, runs)
    told = [each for each in caplog.records if each.levelname == "WARNING"]
    assert len(told) == 1
    assert "register the object that training calls" in told[0].getMessage()


def test_a_compiled_function_that_calls_a_registered_model_is_not_disturbed(
    tmp_path: Path,
) -> None:
    backend = Backend("aot_eager")

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Calm()
        watch.register(model)

        @torch.compile(backend=backend, fullgraph=True)
        def forward(x: torch.Tensor) -> torch.Tensor:
            return 2 * model(x)

        train(watch, model, forward)
        return [model]

    bare, frames, _ = compiled_once(script, Watch(), backend)
    hook = hook_of(tmp_path, save_all=True)
    hooked, hooked_frames, _ = compiled_once(script, Watch(hook), backend)
    assert hooked_frames == frames
    assert_same_end(bare, hooked)


@pytest.mark.parametrize("way", WAYS)
def test_evaluation_of_a_compiled_model_is_saved(tmp_path: Path, way: Any) -> None:
    backend = Backend("aot_eager")

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Calm()
        called = model if watch.witness else way(model, backend, True)
        watch.register(called)
        optimizer = sgd(model)
        for _ in range(2):
            watch.set_mode(ModeKeys.TRAIN)
            for _ in range(4):
                x, y = batch()
                optimizer.zero_grad()
                watch.backward(functional.cross_entropy(called(x), y))
                optimizer.step()
            watch.set_mode(ModeKeys.EVAL)
            with torch.no_grad():
                for _ in range(2):
                    called(batch()[0])
        return [model if watch.witness else plain(model)]

    bare = run_script(script, Watch())
    frames = backend.frames
    torch._dynamo.reset()
    backend.frames = 0
    truth = run_script(script, Watch(witness=True))
    hooked = run_script(script, Watch(hook_of(tmp_path, save_all=True)))
    assert backend.frames == frames
    assert_same_end(bare, hooked)
    expected = {
        step: tensors
        for step, tensors in truth.watch.seen.items()
        if truth.watch.modes[step][1] % 3 == 0
    }
    assert_saved(create_trial(str(tmp_path)), expected)


def test_batches_of_other_sizes_compile_no_more_than_without_the_hook(tmp_path: Path) -> None:
    backend = Backend("aot_eager")

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Calm()
        called: Any = model if watch.witness else torch.compile(model, backend=backend)
        watch.register(called)
        optimizer = sgd(model)
        for size in (5, 5, 7, 9, 3, 5, 11, 4):
            x, y = batch(size)
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(called(x), y))
            optimizer.step()
        return [model]

    bare = run_script(script, Watch())
    frames = backend.frames
    torch._dynamo.reset()
    backend.frames = 0
    truth = run_script(script, Watch(witness=True))
    hooked = run_script(script, Watch(hook_of(tmp_path, save_all=True)))
    assert backend.frames == frames
    assert_same_end(bare, hooked)
    assert_saved(create_trial(str(tmp_path)), at_saved_steps(truth))


class Careful(Calm):
    """Refuses some inputs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] != 4:
            raise ValueError("four columns")
        return super().forward(x)


@pytest.mark.parametrize("way", [whole, in_place, part, part_in_place])
def test_after_an_exception_in_a_compiled_model_it_runs_compiled_again(
    tmp_path: Path, way: Any
) -> None:
    backend = Backend("eager")
    torch.manual_seed(0)
    model = Careful()
    called = way(model, backend, False)
    hook = hook_of(tmp_path, save_all=True)
    hook.register_module(called)
    optimizer = sgd(model)
    with pytest.raises(ValueError, match="four columns"):
        called(torch.randn(5, 3))  # Step 0, which is saved.
    before = backend.runs
    for _ in range(6):
        x, y = batch()
        optimizer.zero_grad()
        functional.cross_entropy(called(x), y).backward()
        optimizer.step()
    assert backend.runs - before == 4
    hook.close()
    trial = create_trial(str(tmp_path))
    assert trial.tensor("first_output_0").steps() == [3, 6]
    assert trial.tensor("gradient/Careful_first.weight").steps() == [3, 6]


def test_a_closed_hook_leaves_a_compiled_model_compiled(tmp_path: Path) -> None:
    for way in WAYS:
        torch._dynamo.reset()
        backend = Backend("eager")
        model = Calm()
        called = way(model, backend, True)
        call = called._compiled_call_impl
        hook = hook_of(tmp_path / way.__name__, save_all=True)
        hook.register_module(called)
        called(batch()[0])
        called(batch()[0])
        hook.close()
        runs = backend.runs
        called(batch()[0])
        assert backend.runs == runs + 1
        assert called._compiled_call_impl is call


@pytest.mark.parametrize("way", WAYS)
def test_copy_of_a_compiled_model_is_independent(tmp_path: Path, way: Any) -> None:
    backend = Backend("eager")

    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Calm()
        called = way(model, backend, False)
        watch.register(called)
        called(batch()[0]).sum().backward()
        twin = copy.deepcopy(called)
        for _ in range(3):
            twin(batch()[0]).sum().backward()
        called(batch()[0]).sum().backward()
        return [plain(model)]

    bare = run_script(script, Watch())
    hook = hook_of(tmp_path, save_all=True)
    assert_same_end(bare, run_script(script, Watch(hook)))
    assert hook.step == 1
