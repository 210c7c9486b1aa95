"""What the hook costs a Gluon training: two trainings in turn, one of them with the hook."""

from __future__ import annotations

import os
import tempfile
import time
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn

from benchmarks.figure import Figure
from smdebug.config.reduction import ReductionConfig
from smdebug.mxnet import Hook

if TYPE_CHECKING:
    from pathlib import Path

BATCH, BLOCK, BLOCKS = 64, 50, 8
REPETITIONS = 5
_INSIDE = ["weights", "biases", "gradients"]
_FIVE = ReductionConfig(reductions=["min", "max", "mean", "std"], norms=["l2"])
SETUPS: dict[str, tuple[float | None, dict[str, Any]]] = {
    # The first step is not counted; no other one saves anything.
    "nothing saved at this step": (
        1.02, {"save_config": {"save_interval": 10**6}, "include_collections": _INSIDE},
    ),
    "losses every step": (None, {"save_config": {"save_interval": 1}}),
    "five reductions of all weights and gradients every 10 steps": (
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

    def block(self) -> float:
        """Trains for a block of steps; returns the seconds until MXNet has computed it all."""
        start = time.perf_counter()
        for _ in range(BLOCK):
            with autograd.record():
                loss = self.loss(self.net(self._images), self._labels)
            loss.backward()
            self._trainer.step(BATCH)
        mx.nd.waitall()
        return time.perf_counter() - start


def measure(folder: Path, peer: str) -> list[Figure]:
    # Whoever else uses the machine is in the figures: ratios of 1.01 need one at rest.
    print(f"    MXNet {mx.__version__} (load {os.getloadavg()[0]:.1f})", flush=True)
    figures = []
    for setup, (limit, options) in SETUPS.items():
        ratios = [ratio for number in range(REPETITIONS) for ratio in _ratios(options, number)]
        what = f"MXNet, small convolutional net, batch {BATCH}, {setup}: our hook over none"
        target = "" if limit is None else f"<= {limit:g}x"
        figures.append(Figure(what, target, ratios, "x", limit, digits=4))
    return figures


def _ratios(options: dict[str, Any], repetition: int) -> list[float]:
    """The time of a block of steps with the hook over that of one without, block after block."""
    alone, hooked = Training(), Training()
    with tempfile.TemporaryDirectory() as place:
        hook = Hook(f"{place}/run", **options)
        hook.register_block(hooked.net)
        hook.register_block(hooked.loss)
        # The first blocks make what is made once.
        alone.block()
        hooked.block()
        ratios = []
        for number in range(BLOCKS):
            # Each goes first every other time.
            if (number + repetition) % 2:
                own, ours = alone.block(), hooked.block()
            else:
                ours, own = hooked.block(), alone.block()
            ratios.append(ours / own)
        hook.close()
    return ratios
