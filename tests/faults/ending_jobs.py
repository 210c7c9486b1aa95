"""Training jobs that are ended by a signal, an exception or an exit."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.jobs import EVERY, at_hook_call, make_model, train_step
from torch.utils.data import DataLoader, IterableDataset

import smdebug.cli.main
import smdebug.pytorch as smd
from smdebug.storage.stores.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.zygote import Line
    from torch import nn


def endless(
    line: Line,
    path: str,
    *,
    how: str = "train",
    signal_at: int | None = None,
    number: int = signal.SIGINT,
    **options: Any,
) -> None:
    """Train until something ends it, and report each step after its backward pass.

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


def some(line: Line, path: str, *, steps: int, **options: Any) -> None:
    """Trains for some steps and comes to its end."""
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=1e6, **options)
    model = make_model()
    hook.register_module(model)
    for _ in range(steps):
        train_step(model, hook.step + 1)
        line.tell(f"step {hook.step}")
    hook.close()


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
    """A script with a handler of its own: an earlier one, a later one, or one that calls ours."""

    ended = threading.Event()

    def mine(number: int, frame: Any) -> None:
        line.tell("handled")
        if how == "calls":
            assert callable(before)
            before(number, frame)
        ended.set()

    before = signal.getsignal(signal.SIGTERM)
    if how == "earlier":
        signal.signal(signal.SIGTERM, mine)
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=1e6)
    if how != "earlier":
        before = signal.signal(signal.SIGTERM, mine)
    model = make_model()
    hook.register_module(model)
    while not ended.is_set():
        train_step(model, hook.step + 1)
        line.tell(f"step {hook.step}")
    for _ in range(3):
        train_step(model, hook.step + 1)
        line.tell(f"step {hook.step}")
    hook.close()
    assert signal.getsignal(signal.SIGTERM) is mine
    sys.exit(5)


class Endless(LocalStore):
    """A store that reports a write, and never answers."""

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
    store = hook._pipeline.run.store = Endless(path)
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
    script = Path(folder) / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    options = ["--out", path, "--save", "weights", "--every", "1"]
    sys.argv = ["smdebug", "run", *options, "--", str(script), str(line.number)]
    smdebug.cli.main.main()
