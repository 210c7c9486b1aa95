"""What the processes of `tests.faults.zygote` do: small trainings, readers, and what goes wrong.

What a step saves depends on its number only, so that whoever looks at a run later can tell whether
it is right, and a step that another job saves again is the same.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import multiprocessing
import os
import random
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import smdebug.cli.main
import smdebug.pytorch as smd
from smdebug.exceptions import MissingCollectionFiles, TrialNotFound
from smdebug.storage.arrow import warm_up
from smdebug.storage.local import LocalStore
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tests.faults.zygote import Line

EVERY = smd.SaveConfig(save_interval=1)
HOOK_CODE = f"{os.sep}smdebug{os.sep}"
_FILE_EVENTS = ("open", "os.rename", "os.remove")


def make_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def train_step(model: nn.Module, step: int) -> None:
    """A forward and a backward; everything in it follows from the number of the step."""
    random = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random))
    model.zero_grad()
    model(torch.randn(2, 3, generator=random)).square().sum().backward()


def truth(step: int) -> dict[str, bytes]:
    """The weights and gradients that a run must hold at a step."""
    model = make_model()
    train_step(model, step)
    found = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        found[f"Sequential_{name}"] = parameter.detach().numpy().tobytes()
        found[f"gradient/Sequential_{name}"] = parameter.grad.numpy().tobytes()
    return found


def wrong_steps(path: str, steps: Iterator[int] | list[int] | range) -> list[str]:
    """What a run lacks of these steps, or holds otherwise than it must; also of all others."""
    trial = Trial(path, wait_seconds=0)
    there = set(trial.steps())
    faults = [f"step {step} is missing" for step in steps if step not in there]
    for step in sorted(there):
        expected = truth(step)
        names = set(trial.tensor_names(step=step))
        if step in steps and not names >= set(expected) | {"0_output_0", "2_output_0"}:
            faults.append(f"step {step} lacks {sorted(set(expected) - names)}")
        for name in names & set(expected):
            if trial.tensor(name).value(step).tobytes() != expected[name]:
                faults.append(f"step {step}: {name} is another")
    return faults


def digest(trial: Any, step: int) -> str:
    """Every byte of every tensor of a step, as a short text."""
    found = hashlib.sha256()
    for name in sorted(trial.tensor_names(step=step)):
        value = np.asarray(trial.tensor(name).value(step))
        found.update(f"{name} {value.dtype} {value.shape} ".encode() + value.tobytes())
    return found.hexdigest()[:24]


# ---- moments


def at_file_operation(path: str, number: int, line: Line) -> None:
    """Has this process killed at the n-th time it creates, renames or removes a file of a run.

    With a number of 0 it lives, and says at its end how many there were.
    """
    count = 0

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in _FILE_EVENTS or not str(arguments[0]).startswith(path):
            return
        if event == "open" and not (int(arguments[2] or 0) & os.O_CREAT):
            return
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        if not number:
            line.tell(f"operation {count}")

    sys.addaudithook(look)


def at_hook_call(number: int, name: int, line: Line) -> None:
    """Has this process sent a signal at the n-th call of a function of the library, in this thread.

    With a number of 0 it is sent none, and every hundredth call is told.
    """
    count = 0

    def look(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if event != "call" or HOOK_CODE not in frame.f_code.co_filename:
            return
        count += 1
        if count == number:
            sys.setprofile(None)
            line.tell("signal")
            signal.raise_signal(name)
        if not number and not count % 100:
            line.tell(f"call {count}")

    sys.setprofile(look)


# ---- trainings


def train(
    line: Line,
    path: str,
    steps: int,
    *,
    kill_at: int | None = None,
    kill_in: str = "all",
    last: int | None = None,
    end: str = "close",
    pause: float = 0.0,
    **options: Any,
) -> None:
    """Trains some steps, publishing each, and says what it is at.

    Args:
        line: where to.
        path: the run.
        steps: how many.
        kill_at: kills itself at this operation on files; 0 to have them counted.
        kill_in: from when on they are counted: `"all"`, or `"close"`.
        last: what `hook.step` is set to.
        end: `"close"`, or `"nothing"`: what is saved is published, and that is all.
        pause: waits so many seconds after each step, for whoever looks at it.
        options: further options of the hook.
    """
    if kill_at is not None and kill_in == "all":
        at_file_operation(path, kill_at, line)
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=0, **options)
    if last is not None:
        hook.step = last
    model = make_model()
    hook.register_module(model)
    for _ in range(steps):
        train_step(model, hook.step + 1)
        line.tell(f"step {hook.step}")
        line.heard(pause)
    if end == "nothing":
        hook.flush()
        # The end of an interpreter takes longer than everything else here.
        os._exit(0)
    if kill_at is not None and kill_in == "close":
        at_file_operation(path, kill_at, line)
    line.tell("closing")
    hook.close()
    line.tell("closed")
    os._exit(0)


def compact(line: Line, path: str, kill_at: int | None = None) -> None:
    """What `smdebug compact` does."""
    if kill_at is not None:
        at_file_operation(path, kill_at, line)
    sys.argv = ["smdebug", "compact", path]
    line.tell("compacting")
    try:
        smdebug.cli.main.main()
    except SystemExit as error:
        os._exit(int(error.code or 0))


def follow(line: Line, path: str) -> None:
    """Reads a run again and again, and writes down each step that it sees, until it is told to end."""
    trial = None
    seen: set[int] = set()
    while not line.heard(0.002):
        if trial is None:
            try:
                trial = Trial(path, wait_seconds=0)
            except (TrialNotFound, MissingCollectionFiles):
                continue
        for step in trial.steps():
            if step not in seen:
                seen.add(step)
                line.tell(f"{step} {digest(trial, step)}")
    os._exit(0)


# ---- endings


def endless(
    line: Line,
    path: str,
    *,
    how: str = "train",
    signal_at: int | None = None,
    number: int = signal.SIGINT,
    **options: Any,
) -> None:
    """Trains until something ends it, and says each step when its backward is done.

    Args:
        line: where to.
        path: the run.
        how: what the script does beside: `"flush"`es after each step; `"close"`s after five, in a
            loop of runs; waits in a long `"call"`; trains in a `"thread"`; loads with `"workers"`.
        signal_at: sends itself a signal at this call of the library; 0 to have them counted.
        number: which one.
        options: further options of the hook.
    """
    options = {"flush_seconds": 1e6, **options}
    if signal_at is not None:
        at_hook_call(signal_at, number, line)
    hook = smd.Hook(path, save_all=True, save_config=EVERY, **options)
    model = make_model()
    hook.register_module(model)
    line.tell("begun")
    if how == "thread":
        # The main thread has nothing more to do: the interpreter waits for this one.
        threading.Thread(target=_train_on, args=(line, hook, model, how)).start()
        return
    _train_on(line, hook, model, how)


def _train_on(line: Line, hook: smd.Hook, model: nn.Module, how: str) -> None:
    batches = iter(_loader()) if how == "workers" else None
    while True:
        if batches is not None:
            next(batches)
        train_step(model, hook.step + 1)
        line.tell(f"step {hook.step}")
        if how == "flush":
            hook.flush()
        if how == "close" and hook.step == 4:
            line.tell("closing")
            hook.close()
            line.tell("closed")
            return
        if how == "call" and hook.step == 4:
            line.tell("calling")
            ctypes.CDLL(None).sleep(1000)


class Numbers(IterableDataset[int]):
    """No end of data."""

    def __iter__(self) -> Iterator[int]:
        return itertools.count()


def _loader() -> DataLoader[int]:
    return DataLoader(Numbers(), batch_size=2, num_workers=2, timeout=100)


class Wrong(Exception):
    """The script's own."""


def die(line: Line, path: str, how: str, where: str, format: str) -> None:
    """Trains five steps and ends in the middle of the sixth, without closing anything."""
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=1e6, format=format)
    model = make_model()
    hook.register_module(model)
    for step in range(5):
        train_step(model, step)
        line.tell(f"step {step}")

    def end(*_: object) -> None:
        if how == "exit":
            sys.exit(3)
        if how == "interrupt":
            raise KeyboardInterrupt
        if how == "_exit":
            os._exit(4)
        raise Wrong

    if where == "forward":
        model[1].register_forward_hook(end)
    if where == "backward":
        model[0].weight.register_hook(end)
    train_step(model, 5)
    end()


def handled(line: Line, path: str, how: str) -> None:
    """A script with a handler of its own, from before or after the hook, that calls others or not."""

    def mine(number: int, frame: object) -> None:
        line.tell("handled")
        if how == "calls":
            assert callable(before)
            before(number, frame)
        nonlocal ended
        ended = True

    ended = False
    before = signal.getsignal(signal.SIGTERM)
    if how == "earlier":
        signal.signal(signal.SIGTERM, mine)
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=1e6)
    if how != "earlier":
        before = signal.signal(signal.SIGTERM, mine)
    model = make_model()
    hook.register_module(model)
    while not ended:
        train_step(model, hook.step + 1)
        line.tell(f"step {hook.step}")
    for _ in range(3):
        train_step(model, hook.step + 1)
        line.tell(f"step {hook.step}")
    hook.close()
    assert signal.getsignal(signal.SIGTERM) is mine
    sys.exit(5)


class Endless(LocalStore):
    """A store that is told to write, says so, and never answers."""

    line: Line
    stuck = False

    def write(self, key: str, chunks: Any) -> None:
        if self.stuck:
            self.line.tell("writing")
            threading.Event().wait()
        super().write(key, chunks)


def slow_end(line: Line, path: str, how: str) -> None:
    """Trains with a store that does not answer any more when the run is to be closed."""
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=1e6)
    store = hook._store = Endless(path)
    store.line = line
    model = make_model()
    hook.register_module(model)
    for step in range(3):
        train_step(model, step)
    hook.flush()
    store.stuck = True
    train_step(model, 3)
    line.tell("ready")
    if how == "call":
        ctypes.CDLL(None).sleep(1000)
    while True:
        train_step(model, 4)


SCRIPT = """
import os, sys, torch
model = torch.nn.Sequential(torch.nn.Linear(3, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
while True:
    optimizer.zero_grad()
    model(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    os.write(int(sys.argv[1]), f"step {step}\\n".encode())
    step += 1
"""


def launched(line: Line, path: str, folder: str) -> None:
    """`smdebug run`, with a script that trains without end."""
    script = os.path.join(folder, "script.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(SCRIPT)
    sys.argv = ["smdebug", "run", "--out", path, "--save", "weights", "--every", "1", "--", script]
    sys.argv.append(str(line.number))
    smdebug.cli.main.main()


# ---- other processes


def forks(line: Line, path: str, when: int, locked: str, child: str) -> None:
    """Trains, forks in the middle of it, and trains on; the child does something of its own.

    Args:
        line: where to.
        path: the run.
        when: how many steps there are before the fork.
        locked: what another thread holds at that moment: `"writer"`, `"hook"` or nothing.
        child: what becomes of the child: `"trains"`, `"exits"`, `"raises"`, `"_exits"`, `"forks"`.
    """
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=0)
    model = make_model()
    hook.register_module(model)
    for _ in range(when):
        train_step(model, hook.step + 1)
        line.tell(f"step {hook.step}")
    pid = _fork_while(hook, locked)
    if pid == 0:
        _be_a_child(hook, model, child)
        return
    _, status = os.waitpid(pid, 0)
    line.tell(f"child {os.waitstatus_to_exitcode(status)}")
    for name in ("training_job_end.ts",):
        assert not os.path.exists(os.path.join(path, name)), f"{name} is there already"
    for _ in range(3):
        train_step(model, hook.step + 1)
        line.tell(f"step {hook.step}")


def _fork_while(hook: smd.Hook, locked: str) -> int:
    """Forks while another thread holds a lock."""
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        output: Any = hook._output
        lock = hook._lock if locked == "hook" or output is None else output._writer._changed
        with lock:
            held.set()
            go.wait()

    if not locked:
        return os.fork()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    pid = os.fork()
    if pid:
        go.set()
        holder.join()
    return pid


def _be_a_child(hook: smd.Hook, model: nn.Module, child: str) -> None:
    """Uses everything there is, and ends in its way; nothing of it may reach the run."""
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    for step in range(100, 103):
        train_step(model, step)
        hook.save_scalar("of_the_child", step)
        hook.save_tensor("of_the_child_too", np.ones(3))
    hook.flush()
    if child == "forks":
        pid = os.fork()
        if pid == 0:
            train_step(model, 103)
            hook.close()
            sys.exit(7)
        _, status = os.waitpid(pid, 0)
        sys.exit(os.waitstatus_to_exitcode(status))
    if child == "closes":
        hook.close()
    if child == "exits":
        sys.exit(7)
    if child == "raises":
        raise Wrong
    if child == "_exits":
        os._exit(7)


def _use_model(model: nn.Module) -> float:
    train_step(model, 1000)
    return float(model(torch.ones(1, 3)).sum())


_shared: nn.Module | None = None


def _use_shared(step: int) -> float:
    assert _shared is not None
    return _use_model(_shared)


def pools(line: Line, path: str, how: str) -> None:
    """Trains beside processes of `multiprocessing` that use the hooked model as well."""
    global _shared
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=0)
    model = _shared = make_model()
    hook.register_module(model)
    context: Any = multiprocessing.get_context("spawn" if how == "spawn" else "fork")
    for _ in range(2):
        train_step(model, hook.step + 1)
        line.tell(f"step {hook.step}")
        if how == "pool":
            with context.Pool(2) as pool:
                assert len(set(pool.map(_use_shared, range(6)))) == 1
        else:
            process = context.Process(target=_use_model, args=(model,))
            process.start()
            process.join()
            assert process.exitcode == 0
    train_step(model, hook.step + 1)
    line.tell(f"step {hook.step}")


def terminates_children(line: Line, path: str, count: int, seed: int) -> None:
    """Trains, and starts and terminates children at once, as pools that are given up do."""
    choose = random.Random(seed)
    hook = smd.Hook(path, save_all=True, save_config=EVERY)
    model = make_model()
    hook.register_module(model)
    for _ in range(count):
        train_step(model, hook.step + 1)
        line.tell(f"step {hook.step}")
        pid = os.fork()
        if pid == 0:
            threading.Event().wait()
        line.heard(choose.choice([0.0, 0.0, 0.001]))
        # One that comes before Python has begun in the child is lost there, with a hook or without.
        code = 0
        while not code:
            os.kill(pid, signal.SIGTERM)
            found, status = os.waitpid(pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if found else 0
        line.tell(f"child {code}")


# ---- threads


def saves_from_threads(line: Line, path: str, threads: int, saves: int, format: str) -> None:
    """Threads save scalars and tensors while the main thread trains, and say when they did."""
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=0, format=format)
    model = make_model()
    hook.register_module(model)
    train_step(model, 0)
    told: list[str] = []

    def save(thread: int) -> None:
        for number in range(saves):
            before = hook.step
            if number % 2:
                hook.save_tensor(f"{thread}_{number}", np.full(3, number))
            else:
                hook.save_scalar(f"{thread}_{number}", number)
            told.append(f"saved {thread}_{number} {before} {hook.step}")
            if number % 10 == 9:
                hook.flush()

    workers = [threading.Thread(target=save, args=(each,)) for each in range(threads)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        train_step(model, hook.step + 1)
    for worker in workers:
        worker.join()
    line.tell(f"step {hook.step}")
    hook.close()
    for text in told:
        line.tell(text)
    line.tell(f"failed {hook._guard.failed}")
    os._exit(0)


def _free_training(steps: int, seed: int, hook: smd.Hook | None) -> list[str]:
    """Trains a model of its own by SGD; returns the last weights."""
    random = torch.Generator().manual_seed(seed)
    model = make_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random))
    if hook is not None:
        hook.register_module(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(2, 3, generator=random)).square().mean().backward()
        optimizer.step()
    return [parameter.detach().numpy().tobytes().hex() for parameter in model.parameters()]


def two_models(line: Line, path: str, steps: int) -> None:
    """Two threads train a model each, with one hook."""
    alone = [_free_training(steps, seed, None) for seed in range(2)]
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=0)
    found: dict[int, list[str]] = {}

    def run(seed: int) -> None:
        found[seed] = _free_training(steps, seed, hook)

    workers = [threading.Thread(target=run, args=(seed,)) for seed in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    hook.close()
    line.tell(f"same {[found.get(seed) for seed in range(2)] == alone}")
    line.tell(f"step {hook.step}")
    line.tell(f"failed {hook._guard.failed}")
    os._exit(0)


def closes_from_a_thread(line: Line, path: str, seconds: float, format: str) -> None:
    """A thread closes the hook at some moment while the main thread trains on."""
    alone = _free_training(400, 1, None)
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=0, format=format)
    made: list[nn.Module] = []
    register = hook.register_module

    def registered(model: nn.Module) -> Any:
        made.append(model)
        return register(model)

    hook.register_module = registered  # type: ignore[assignment, method-assign]

    def close() -> None:
        line.heard(seconds)
        before = hook.step
        hook.close()
        line.tell(f"closed {before}")

    closer = threading.Thread(target=close)
    closer.start()
    found = _free_training(400, 1, hook)
    closer.join()
    left = [
        hooks
        for module in made[0].modules()
        for hooks in (module._forward_hooks, module._forward_pre_hooks)
        if hooks
    ]
    left += [each for each in made[0].parameters() if each._backward_hooks]
    line.tell(f"same {found == alone}")
    line.tell(f"failed {hook._guard.failed}")
    line.tell(f"left {len(left)}")
    os._exit(0)


def used_after_close(line: Line, path: str) -> None:
    """Everything that can be done with a hook, done when it is closed, by several threads."""
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=0)
    model = make_model()
    hook.register_module(model)
    train_step(model, 0)
    hook.close()

    def use() -> None:
        train_step(model, 1)
        hook.save_scalar("late", 1)
        hook.save_tensor("late_too", np.ones(2))
        hook.flush()
        hook.set_mode(smd.modes.EVAL)
        hook.export_collections()
        hook.stats()
        hook.close()

    workers = [threading.Thread(target=use) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    use()
    line.tell(f"failed {hook._guard.failed}")


def closes_at_once(line: Line, path: str) -> None:
    """Several threads close a hook, and flush it, at the same time."""
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=1e6)
    model = make_model()
    hook.register_module(model)
    for step in range(5):
        train_step(model, step)
        line.tell(f"step {step}")
    start = threading.Barrier(6)

    def work(number: int) -> None:
        start.wait()
        if number % 2:
            hook.flush()
        hook.close()
        # Whoever comes back finds it done.
        assert os.path.exists(os.path.join(path, "training_job_end.ts"))
        line.tell(f"done {number}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    line.tell(f"failed {hook._guard.failed}")
    os._exit(0)
