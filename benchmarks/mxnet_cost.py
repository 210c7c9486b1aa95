"""What the hook costs a Gluon training: two trainings in turn, one of them with the hook."""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn

from benchmarks.figure import FLOOR, Figure
from smdebug.config.reduction_config import ReductionConfig
from smdebug.mxnet import Hook

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

BATCH, BLOCK, BLOCKS = 64, 50, 8
REPETITIONS, PLAIN_REPETITIONS = 3, 2
_INSIDE = ["weights", "biases", "gradients"]
_FIVE = ReductionConfig(reductions=["min", "max", "mean", "std"], norms=["l2"])
LOSSES = "losses every step"
REDUCTIONS = "five reductions of all weights and gradients every 10 steps"
SETUPS: dict[str, tuple[float | None, dict[str, Any]]] = {
    # The first step is not counted; no other one saves anything.
    "nothing saved at this step": (
        1.02, {"save_config": {"save_interval": 10**6}, "include_collections": _INSIDE},
    ),
    LOSSES: (None, {"save_config": {"save_interval": 1}}),
    REDUCTIONS: (
        1.10,
        {
            "save_config": {"save_interval": 10},
            "include_collections": _INSIDE,
            "reduction_config": _FIVE,
        },
    ),
    "everything raw every 50 steps": (
        None, {"save_config": {"save_interval": 50}, "save_all": True},
    ),
}  # fmt: skip


class Training:
    """A small convolutional net and its data."""

    def __init__(self) -> None:
        mx.random.seed(0)
        self.net = nn.HybridSequential()
        self.net.add(
            nn.Conv2D(16, 3, activation="relu"),
            nn.MaxPool2D(),
            nn.Conv2D(32, 3, activation="relu"),
            nn.MaxPool2D(),
            nn.Flatten(),
            nn.Dense(128, activation="relu"),
            nn.Dense(10),
        )
        self.net.initialize()
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self._trainer = gluon.Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.01})
        self._images = mx.nd.random.normal(shape=(BATCH, 1, 28, 28))
        self._labels = mx.nd.random.randint(0, 10, (BATCH,)).astype("float32")

    def block(self, after_step: Callable[[Any], None] | None = None) -> float:
        """Trains for a block of steps; returns the seconds until MXNet has computed it all."""
        start = time.perf_counter()
        for _ in range(BLOCK):
            with autograd.record():
                loss = self.loss(self.net(self._images), self._labels)
            loss.backward()
            self._trainer.step(BATCH)
            if after_step is not None:
                after_step(loss)
        mx.nd.waitall()
        return time.perf_counter() - start


class Plain:
    """The floor: losses, or copies of all parameters and gradients every 10 steps, in a file.

    Args:
        setup: what is wanted of a training.
        path: the file.
        training: the one to observe.
    """

    def __init__(self, setup: str, path: Path, training: Training) -> None:
        self._file = path.open("wb")
        self._parameters = training.net.collect_params().values() if setup == REDUCTIONS else ()
        self._interval = 10 if setup == REDUCTIONS else 1
        self._number = 0

    def after_step(self, loss: Any) -> None:
        if self._number % self._interval == 0:
            # `asnumpy` copies, and waits: by hand there is no other way.
            self._file.write(loss.asnumpy().tobytes())
            for parameter in self._parameters:
                for array in (parameter.data(), parameter.grad()):
                    self._file.write(array.asnumpy().tobytes()[:20])
        self._number += 1

    def close(self) -> None:
        self._file.close()


def measure(bench: Bench) -> list[Figure]:
    # Whoever else uses the machine is in the figures: ratios of 1.01 need one at rest.
    print(f"    MXNet {mx.__version__} (load {os.getloadavg()[0]:.1f})", flush=True)
    figures = []
    for setup, (limit, options) in SETUPS.items():
        ratios = _ratios(bench, REPETITIONS, partial(_hook, options))
        peers: dict[str, list[float] | str] = {}
        if setup in (LOSSES, REDUCTIONS):
            peers[FLOOR] = _ratios(bench, PLAIN_REPETITIONS, partial(Plain, setup))
        what = f"MXNet, small convolutional net, batch {BATCH}: {setup}"
        target = "" if limit is None else f"<= {limit:g} x"
        figures.append(Figure(what, target, ratios, "x", limit, digits=4, peers=peers))
    return figures


def _hook(options: dict[str, Any], place: Path, training: Training) -> Hook:
    hook = Hook(str(place), **options)
    hook.register_block(training.net)
    hook.register_block(training.loss)
    return hook


def _ratios(bench: Bench, times: int, observe: Callable[[Path, Training], Any]) -> list[float]:
    """The time of an observed block of steps over that of one alone, many times."""
    blocks = bench.times(BLOCKS)
    repetitions = range(bench.times(times))
    return [ratio for number in repetitions for ratio in _repetition(observe, number, blocks)]


def _repetition(
    observe: Callable[[Path, Training], Any], repetition: int, blocks: int
) -> list[float]:
    alone, observed = Training(), Training()
    with tempfile.TemporaryDirectory() as place:
        # It makes what is made at the first step, which `Plain` looks at.
        alone.block()
        observed.block()
        observer = observe(Path(place) / "run", observed)
        after_step = observer.after_step if isinstance(observer, Plain) else None
        observed.block(after_step)
        ratios = []
        for number in range(blocks):
            # Each goes first every other time.
            if (number + repetition) % 2:
                own, ours = alone.block(), observed.block(after_step)
            else:
                ours, own = observed.block(after_step), alone.block()
            ratios.append(ours / own)
        observer.close()
    return ratios
