"""Timing an observed training between blocks of the same training alone.

Machines drift: within a second, the same steps take a tenth more or less. So a block of steps is
divided by the mean of the two blocks around it, and the median of many such ratios counts.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.observers import Nothing, Observer

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from benchmarks.setups import Length
    from benchmarks.trainings import Training

PAUSE, PATIENCE = 0.002, 10.0


class Block(NamedTuple):
    """Steps in a row."""

    seconds: float
    loss: float


def repetition(
    build: Callable[[], Training], observe: Callable[[Training], Observer], length: Length
) -> list[float]:
    """The time of an observed step over that of one alone, once for every round."""
    alone, observed = build(), build()
    nothing, observer = Nothing(), observe(observed)
    try:
        run(alone, nothing, length.warm)
        run(observed, observer, length.warm)
        before = block(alone, nothing, length.steps)
        ratios = []
        for _ in range(length.rounds):
            between = block(observed, observer, length.steps)
            after = block(alone, nothing, length.steps)
            if not math.isclose(between.loss, before.loss, rel_tol=1e-3):
                raise RuntimeError(f"being observed changed the loss: {before} {between}")
            ratios.append(between.seconds / ((before.seconds + after.seconds) / 2))
            before = after
    except Exception:
        # Its own complaint about a training cut short would hide what cut it short.
        with contextlib.suppress(Exception):
            observer.close()
        raise
    observer.close()
    return ratios


def block(training: Training, observer: Observer, steps: int) -> Block:
    """A few steps, begun when nothing else is under way."""
    settle()
    began = time.perf_counter()
    loss = run(training, observer, steps)
    return Block(time.perf_counter() - began, loss.item())


def run(training: Training, observer: Observer, steps: int) -> torch.Tensor:
    """The loss of the last step."""
    for _ in range(steps):
        loss = training.step()
        observer.after_step(loss)
    return loss


def settle() -> None:
    """Waits until the threads of this process rest: what they still write is no other's cost."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        used = time.process_time()
        time.sleep(PAUSE)
        if time.process_time() - used < PAUSE / 5:
            return
