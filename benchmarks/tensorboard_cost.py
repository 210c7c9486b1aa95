"""What TensorBoard files cost a PyTorch training: histograms of everything, every 10 steps.

Three trainings in turn, block by block: alone, with the hook, and with the hook that writes
TensorBoard files too. Nothing is to be reached: histograms are the writer's work, not training's.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import smdebug.pytorch as smd
from benchmarks.blocks import block, run
from benchmarks.figure import Figure
from benchmarks.observers import Nothing
from benchmarks.trainings import SEED, Training

if TYPE_CHECKING:
    from benchmarks.bench import Bench

EVERY, STEPS, ROUNDS, REPETITIONS = 10, 50, 4, 3
WITHOUT, WITH = "the run alone", "TensorBoard files too"
_FIVE = smd.ReductionConfig(reductions=["min", "max", "mean", "std"], norms=["l2"])
# What is saved in the run beside.
SAVED = {"raw": None, "five reductions of": _FIVE}


def measure(bench: Bench) -> list[Figure]:
    torch.set_num_threads(1)
    figures = []
    for name, config in SAVED.items():
        # Whoever else uses the machine is in the figures: ratios of 1.01 need one at rest.
        print(f"    {name} (load {os.getloadavg()[0]:.1f})", flush=True)
        ratios: dict[str, list[float]] = {}
        for _ in range(bench.times(REPETITIONS)):
            for what, values in _repetition(config).items():
                ratios.setdefault(what, []).extend(values)
        start = f"1 M parameters, {name} weights and gradients every {EVERY} steps"
        for what, values in ratios.items():
            unit = "ms" if "training thread" in what else "x"
            figures.append(Figure(f"{start}: {what}", "", values, unit, digits=4))
    return figures


def _repetition(config: Any) -> dict[str, list[float]]:
    """Ratios of blocks, and what the training thread spent on every save."""
    nothing, alone = Nothing(), _training()
    watched = {WITHOUT: _training(), WITH: _training()}
    ratios: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        hooks = {
            name: _hook(training, f"{place}/{number}", config, tensorboard=name == WITH)
            for number, (name, training) in enumerate(watched.items())
        }
        for each in (alone, *watched.values()):
            run(each, nothing, EVERY)
        for _ in range(ROUNDS):
            seconds = {name: block(each, nothing, STEPS).seconds for name, each in watched.items()}
            bare = block(alone, nothing, STEPS).seconds
            for name, taken in seconds.items():
                ratios.setdefault(f"{name}, over no hook", []).append(taken / bare)
            both = f"{WITH}, over {WITHOUT}"
            ratios.setdefault(both, []).append(seconds[WITH] / seconds[WITHOUT])
        for name, hook in hooks.items():
            hook.close()
            stats = hook.stats()
            spent = 1000 * (stats.seconds - stats.seconds_waited) / stats.saved_steps
            ratios[f"{name}, training thread per save"] = [spent]
    smd.del_hook()
    return ratios


def _hook(training: Training, place: str, config: Any, tensorboard: bool) -> smd.Hook:
    hook = smd.Hook(
        place, save_config=smd.SaveConfig(save_interval=EVERY), reduction_config=config,
        include_collections=["weights", "biases", "gradients"], export_tensorboard=tensorboard,
    )  # fmt: skip
    hook.register_module(training.model)
    hook.register_loss(training.loss)
    return hook


def _training() -> Training:
    torch.manual_seed(SEED)
    sizes = [256, 512, 1024, 256, 10]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    targets = torch.randint(10, (128,))
    return Training(model, nn.CrossEntropyLoss(), optimizer, torch.randn(128, 256), targets)
