"""Training jobs that fork, and start processes that use the hooked model as well."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tests.faults.ending_jobs import Wrong
from tests.faults.jobs import EVERY, make_model, train_step
from torch import nn

import smdebug.pytorch as smd
from smdebug.storage.format.keys import END_KEY

if TYPE_CHECKING:
    from tests.zygote import Line


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
    assert not (Path(path) / END_KEY).exists()
    for _ in range(3):
        train_step(model, hook.step + 1)
        line.tell(f"step {hook.step}")


def _fork_while(hook: smd.Hook, locked: str) -> int:
    """Forks while another thread holds a lock."""
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        pipeline: Any = hook._pipeline
        queue = None if pipeline.run.output is None else pipeline.run.output._writer._queue
        lock = pipeline.guarded.lock if locked == "hook" or queue is None else queue._changed
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
    """Train together with processes of `multiprocessing` that use the hooked model as well."""
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
