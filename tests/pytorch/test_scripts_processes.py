"""Scripts that copy, pickle, fork, start threads and loaders, and end in all ways."""

from __future__ import annotations

import copy
import io
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.pytorch.programs.models import Net, batch, plain_step, sgd
from tests.pytorch.programs.twin import (
    Watch,
    assert_same_end,
    assert_saved,
    bits,
    check_script,
    hooks_left,
    run_script,
)
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from smdebug import SaveConfig
from smdebug.pytorch import Hook
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from smdebug.trials.trial import Trial

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
TIMEOUT = 100


def every_step(out_dir: Path, **options: Any) -> Hook:
    return Hook(
        out_dir, save_all=True, save_config=SaveConfig(save_interval=1), on_error="raise", **options
    )


def run_program(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAMS / name), *map(str, arguments)],
        capture_output=True, text=True, timeout=TIMEOUT, check=False, cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip


# ---- copies and pickles


def through_pickle(model: nn.Module) -> Any:
    return pickle.loads(pickle.dumps(model))


def through_torch(model: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: list[Callable[[nn.Module], Any]] = [copy.deepcopy, through_pickle, through_torch]


@pytest.mark.parametrize("make", COPIES)
@pytest.mark.parametrize("when", ["before", "forward", "backward", "step"])
def test_copy_of_a_hooked_model_is_independent(
    tmp_path: Path, make: Callable[[nn.Module], Any], when: str
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        copies = []
        optimizer = sgd(model)

        def maybe_copy(now: str) -> None:
            if now != when:
                return
            state = torch.get_rng_state()
            if watch.witness:
                # The witness's own hooks would go along.
                twin = Net()
                twin.load_state_dict(model.state_dict())
            else:
                twin = make(model)
                assert hooks_that_act(twin) == []
            copies.append(twin)
            torch.set_rng_state(state)
            for _ in range(2):
                plain_step(twin, sgd(twin))
            torch.set_rng_state(state)

        for number in range(3):
            now = number != 1
            x, y = batch()
            if not now:
                maybe_copy("before")
            out = model(x)
            if not now:
                maybe_copy("forward")
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(out, y))
            if not now:
                maybe_copy("backward")
            optimizer.step()
            if not now:
                maybe_copy("step")
        return [model, *(plain(twin) for twin in copies)]

    assert check_script(script, tmp_path).watch.step == 2


def plain(model: nn.Module) -> nn.Module:
    """A model with the same parameters that nothing was done to."""
    twin = Net()
    twin.load_state_dict(model.state_dict())
    return twin


def hooks_that_act(model: nn.Module) -> list[str]:
    """Hooks that come from the library, on a copy."""
    found = []
    for path, module in model.named_modules():
        for kind in ("_forward_hooks", "_forward_pre_hooks"):
            for each in getattr(module, kind).values():
                if "smdebug" in f"{type(each).__module__} {each!r}":
                    found.append(f"{path}: {kind}: {each!r}")
    for path, parameter in model.named_parameters():
        for each in (parameter._backward_hooks or {}).values():
            found.append(f"{path}: {each!r}")
    return found


@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_pickle_of_a_hooked_model_loads_without_the_library(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(0)
    model = Net()
    with every_step(tmp_path / "run") as hook:
        hook.register_module(model)
        optimizer = sgd(model)
        plain_step(model, optimizer)
        path = tmp_path / "model.bin"
        # In the middle of a step that saves everything.
        loss = model(batch()[0]).sum()
        if kind == "pickle":
            path.write_bytes(pickle.dumps(model))
        else:
            torch.save(model, path)
        loss.backward()
    done = run_program("loads_without.py", kind, path)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert set(torch.load(path.with_suffix(".state"))) == set(model.state_dict())


def test_state_dict_of_a_hooked_model_is_unchanged(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, twin = Net(), Net()
    before = list(twin.state_dict())
    with every_step(tmp_path) as hook:
        hook.register_module(model)
        assert list(model.state_dict()) == before
        loss = model(batch()[0]).sum()
        assert list(model.state_dict()) == before
        loss.backward()
        twin.load_state_dict(model.state_dict())
        model.load_state_dict(twin.state_dict())
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        assert list(torch.load(file, weights_only=True)) == before


def test_a_checkpoint_with_optimizer_and_hook_references_can_be_saved(tmp_path: Path) -> None:
    """Trainers keep everything in one object and pickle that."""
    model = Net()
    hook = every_step(tmp_path / "run")
    hook.register_module(model)
    holder = {"model": model, "optimizer": sgd(model), "hook": hook}
    plain_step(model, sgd(model))
    torch.save(holder, tmp_path / "all.pt")
    loaded = torch.load(tmp_path / "all.pt", weights_only=False)
    plain_step(loaded["model"], loaded["optimizer"])
    loaded["hook"].close()
    plain_step(model, sgd(model))
    hook.close()
    assert create_trial(str(tmp_path / "run")).steps() == [0, 1]


# ---- loaders, forks, threads


class Numbers(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((4,), index / 12), torch.tensor(index % 3)


# Whether a process of several threads may fork is Python's question, not ours.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(
    ("start", "persistent"), [("fork", False), ("fork", True), ("spawn", True)]
)
def test_loaders_with_workers_run_together_with_the_hook(
    tmp_path: Path, start: str, persistent: bool
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        loader = DataLoader(
            Numbers(), batch_size=4, shuffle=True, num_workers=2, timeout=TIMEOUT,
            persistent_workers=persistent, multiprocessing_context=start,
        )  # fmt: skip
        for _ in range(2):
            for x, y in loader:
                optimizer.zero_grad()
                watch.backward(functional.cross_entropy(model(x), y))
                optimizer.step()
        return [model]

    truth = run_script(script, Watch(witness=True))
    hooked = run_script(script, Watch(every_step(tmp_path, flush_seconds=0)))
    assert_same_end(truth, hooked)
    assert_saved(create_trial(str(tmp_path)), truth.watch.seen)


def test_a_forked_child_writes_nothing_and_does_not_end_the_run(tmp_path: Path) -> None:
    done = run_program("endings.py", "forked", tmp_path / "run", 3)
    assert done.returncode == 0, done.stderr
    assert "child ended" in done.stdout
    trial = create_trial(str(tmp_path / "run"))
    # The steps of the parent, of which the last came after the child had ended.
    assert trial.steps() == [0, 1, 2, 3]
    for name in trial.tensor_names():
        for value in trial.tensor(name).values().values():
            assert not torch.from_numpy(value.copy()).isnan().any()
    assert trial.loaded_all_steps


def test_training_may_run_in_a_thread(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)

        def train() -> None:
            for _ in range(4):
                x, y = batch()
                optimizer.zero_grad()
                watch.backward(functional.cross_entropy(model(x), y))
                optimizer.step()

        in_thread(train)
        return [model]

    check_script(script, tmp_path)


def in_thread(*functions: Callable[[], None]) -> None:
    """Runs functions in threads of their own; their exceptions are raised here."""
    failures: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(each,)) for each in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    for failure in failures:
        raise failure


def test_two_models_may_train_in_two_threads_with_two_hooks(tmp_path: Path) -> None:
    def train(watch: Watch, seed: int) -> nn.Module:
        random = torch.Generator().manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=random))
        watch.register(model)
        optimizer = sgd(model)
        for _ in range(20):
            x = torch.randn(5, 4, generator=random)
            y = torch.randint(0, 3, (5,), generator=random)
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(model(x), y))
            optimizer.step()
        return model

    truths = [Watch(witness=True) for _ in range(2)]
    expected = [train(watch, seed) for seed, watch in enumerate(truths)]
    hooks = [every_step(tmp_path / str(seed)) for seed in range(2)]
    found: dict[int, nn.Module] = {}

    def run(seed: int) -> None:
        found[seed] = train(Watch(hooks[seed]), seed)

    in_thread(lambda: run(0), lambda: run(1))
    for seed, hook in enumerate(hooks):
        hook.close()
        for key, value in expected[seed].state_dict().items():
            assert torch.equal(found[seed].state_dict()[key], value)
        assert_saved(create_trial(str(tmp_path / str(seed))), truths[seed].seen)


# ---- taken off in the middle


def test_a_hook_closed_in_the_middle_saves_what_came_before(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        for number in range(6):
            if number == 3 and watch.hook is not None:
                watch.hook.close()
                assert hooks_left(model) == []
            x, y = batch()
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(model(x), y))
            optimizer.step()
        return [model]

    truth = run_script(script, Watch(witness=True))
    assert_same_end(truth, run_script(script, Watch(every_step(tmp_path))))
    expected = {step: each for step, each in truth.watch.seen.items() if step < 3}
    assert_saved(create_trial(str(tmp_path)), expected)


@pytest.mark.parametrize("how", ["remove", "close"])
def test_hook_removed_between_forward_and_backward_pass_restores_the_model(
    tmp_path: Path, how: str
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        handle = watch.register(model)
        optimizer = sgd(model)
        for number in range(4):
            x, y = batch()
            loss = functional.cross_entropy(model(x), y)
            if number == 2 and watch.hook is not None:
                if how == "remove":
                    handle.remove()
                else:
                    watch.hook.close()
                assert hooks_left(model) == []
            optimizer.zero_grad()
            watch.backward(loss)
            optimizer.step()
        return [model]

    truth = run_script(script, Watch(witness=True))
    assert_same_end(truth, run_script(script, Watch(every_step(tmp_path))))
    expected = {step: each for step, each in truth.watch.seen.items() if step < 3}
    expected[2] = {key: x for key, x in expected[2].items() if not key.startswith("gradient/")}
    assert_saved(create_trial(str(tmp_path)), expected)


def test_removing_one_model_leaves_the_other_registered(tmp_path: Path) -> None:
    class Other(nn.Sequential):
        pass

    torch.manual_seed(0)
    model, other = Net(), Other(nn.Linear(3, 3))
    hook = every_step(tmp_path)
    handle = hook.register_module(model)
    hook.register_module(other)
    for number in range(3):
        x, y = batch()
        loss = functional.cross_entropy(other(model(x)), y)
        if number == 1:
            # Between the forward passes of both and the backward pass.
            handle.remove()
        loss.backward()
    assert hooks_left(model) == []
    hook.close()
    trial = create_trial(str(tmp_path))
    # Two steps at first, then one.
    assert trial.steps() == [0, 1, 2, 3, 4]
    assert trial.tensor("gradient/Other_0.weight").steps() == [1, 3, 4]
    assert trial.tensor("gradient/Net_last.weight").steps() == [1]
    assert trial.tensor("Net_last.weight").steps() == [0, 1, 2, 3]


def test_after_one_hook_another_may_observe_the_same_model(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        for number in range(6):
            if number == 3 and watch.hook is not None:
                watch.hook.close()
                watch.hook = every_step(tmp_path / "second")
                watch.hook.register_module(model)
            x, y = batch()
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(model(x), y))
            optimizer.step()
        return [model]

    truth = run_script(script, Watch(witness=True))
    assert_same_end(truth, run_script(script, Watch(every_step(tmp_path / "first"))))
    seen = truth.watch.seen
    assert_saved(create_trial(str(tmp_path / "first")), {n: seen[n] for n in (0, 1, 2)})
    assert_saved(create_trial(str(tmp_path / "second")), {n - 3: seen[n] for n in (3, 4, 5)})


def test_two_hooks_may_observe_one_model_at_once(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        second = None
        if watch.hook is not None:
            second = every_step(tmp_path / "second")
            second.register_module(model)
        optimizer = sgd(model)
        for _ in range(3):
            x, y = batch()
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(model(x), y))
            optimizer.step()
        if second is not None:
            second.close()
        return [model]

    truth = run_script(script, Watch(witness=True))
    assert_same_end(truth, run_script(script, Watch(every_step(tmp_path / "first"))))
    for folder in ("first", "second"):
        assert_saved(create_trial(str(tmp_path / folder)), truth.watch.seen)


# ---- the script's own exceptions


class OutOfMemory(RuntimeError):
    pass


class Refusing(nn.Module):
    """Raises on request, deep inside."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.gate = Gate()
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.gate(self.first(x)))
        return out


class Gate(nn.Module):
    closed = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.closed:
            raise OutOfMemory
        return torch.relu(x)


@pytest.mark.parametrize("at", [0, 2])
def test_after_an_exception_in_the_forward_pass_the_next_steps_are_saved_right(
    tmp_path: Path, at: int
) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Refusing()
        watch.register(model)
        optimizer = sgd(model)
        for number in range(5):
            x, y = batch()
            model.gate.closed = number == at
            try:
                out = model(x)
            except OutOfMemory:
                if watch.hook is not None:
                    # Only what stays all the time.
                    left = [each for each in hooks_left(model) if "_backward_hooks" not in each]
                    assert left == [": _forward_pre_hooks"]
                continue
            optimizer.zero_grad()
            watch.backward(functional.cross_entropy(out, y))
            optimizer.step()
        return [model]

    end = check_script(script, tmp_path)
    assert "first_output_0" in end.watch.seen[at]
    assert "last_output_0" not in end.watch.seen[at]
    assert "gradient/Refusing_last.weight" not in end.watch.seen[at]


def test_an_exception_in_the_backward_pass_is_the_scripts_own(tmp_path: Path) -> None:
    def script(watch: Watch) -> Iterable[nn.Module]:
        model = Net()
        watch.register(model)
        optimizer = sgd(model)
        for number in range(4):
            x, y = batch()
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            if number == 1:

                def refuse(gradient: torch.Tensor) -> None:
                    raise RuntimeError("the script's own")

                loss.register_hook(refuse)
                with pytest.raises(RuntimeError, match="the script's own"):
                    loss.backward()
                continue
            watch.backward(loss)
            optimizer.step()
        return [model]

    check_script(script, tmp_path)


# ---- how processes end


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("exit", 3), ("exception", 1)])
def test_a_script_that_ends_without_closing_leaves_a_finished_run(
    tmp_path: Path, how: str, code: int
) -> None:
    done = run_program("endings.py", how, tmp_path / "run", 5)
    assert done.returncode == code, done.stderr
    assert ("the script's own" in done.stderr) == (how == "exception")
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps() == [0, 1, 2, 3, 4]
    assert trial.loaded_all_steps
    # The last step is complete too.
    assert "gradient/Sequential_2.weight" in trial.tensor_names(step=4)
    assert "2_output_0" in trial.tensor_names(step=4)
    assert_as_trained_here(trial, 5)


def assert_as_trained_here(trial: Trial, steps: int) -> None:
    """What a program saved is what the same training gives in this process."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(steps):
        for path, parameter in model.named_parameters():
            found = trial.tensor(f"Sequential_{path}").value(number)
            assert found.tobytes() == bits(parameter)[2]
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(torch.randn(5, 4)), torch.randint(0, 2, (5,)))
        loss.backward()
        for path, parameter in model.named_parameters():
            assert parameter.grad is not None
            found = trial.tensor(f"gradient/Sequential_{path}").value(number)
            assert found.tobytes() == bits(parameter.grad)[2]
        optimizer.step()


def test_after_a_kill_the_next_process_goes_on_in_the_same_directory(tmp_path: Path) -> None:
    killed = run_program("endings.py", "killed", tmp_path / "run", 7)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert "flushed" in killed.stdout
    first = create_trial(str(tmp_path / "run"))
    assert set(first.steps()) >= {0, 1, 2, 3}
    assert_as_trained_here(first, 4)
    assert not first.loaded_all_steps

    done = run_program("endings.py", "return", tmp_path / "run", 2)
    assert done.returncode == 0, done.stderr
    trial = create_trial(str(tmp_path / "run"))
    assert set(trial.steps()) >= {0, 1, 2, 3}
    assert trial.loaded_all_steps
    # Steps that were made again have the later values (here the same: one seed); others stay.
    assert_as_trained_here(trial, 4)
    assert trial.tensor("gradient/Sequential_0.weight").steps()[:4] == [0, 1, 2, 3]
