"""Hooks that several threads use."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tests.faults.jobs import EVERY, make_model, train_step
from torch import nn

import smdebug.pytorch as smd
from smdebug.storage.format.keys import END_KEY

if TYPE_CHECKING:
    from tests.zygote import Line


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
    line.tell(f"failed {hook._pipeline.errors.failure}")
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
    line.tell(f"failed {hook._pipeline.errors.failure}")
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
    line.tell(f"failed {hook._pipeline.errors.failure}")
    line.tell(f"left {len(left)}")
    os._exit(0)


def used_after_close(line: Line, path: str) -> None:
    """Everything that can be done with a hook, done when it is closed, by several threads."""
    hook = smd.Hook(path, save_all=True, save_config=EVERY, flush_seconds=0)
    model = make_model()
    hook.register_module(model)
    train_step(model, 0)
    hook.close()

    other = make_model()

    def use() -> None:
        train_step(model, 1)
        hook.register_module(other).remove()
        hook.register_loss(nn.MSELoss())
        hook.register_module(other)
        assert not other._forward_pre_hooks
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
    line.tell(f"failed {hook._pipeline.errors.failure}")


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
        # When the call returns, it is done.
        assert (Path(path) / END_KEY).exists()
        line.tell(f"done {number}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    line.tell(f"failed {hook._pipeline.errors.failure}")
    os._exit(0)
