"""What processes of `tests.zygote` do: train, read, and exit at a given time.

What a step saves depends on its number only, so that whoever looks at a run later can tell whether
it is right, and a step that another job saves again is the same.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

import smdebug.cli.main
import smdebug.pytorch as smd
from smdebug.exceptions import MissingCollectionFiles, TrialNotFound
from smdebug.storage.arrow import warm_up
from smdebug.trials.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tests.zygote import Line

EVERY = smd.SaveConfig(save_interval=1)
HOOK_CODE = f"{os.sep}smdebug{os.sep}"
_FILE_EVENTS = ("open", "os.rename", "os.remove")


def prepare() -> None:
    """What every process would do at its start."""
    torch.set_num_threads(1)
    warm_up()


def make_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def train_step(model: nn.Module, step: int) -> None:
    """A forward and a backward pass; everything in it follows from the number of the step."""
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
        if frame.f_code.co_flags & inspect.CO_GENERATOR:
            # One that is given up is called once more, and Python drops what is raised then.
            return
        count += 1
        if count == number:
            sys.setprofile(None)
            line.tell("signal")
            signal.raise_signal(name)
        if not number and not count % 100:
            line.tell(f"call {count}")

    sys.setprofile(look)


# ---- training


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
        pause: seconds to wait after each step, for readers.
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
    """Read a run repeatedly, and report each visible step, until it is stopped."""
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
