"""Weights & Biases, offline: its own histograms of parameters and gradients, and the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import wandb

from benchmarks import setups

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from benchmarks.trainings import Training

# How often there are histograms; of the losses alone there are none.
INTERVALS = {setups.LOSSES: 0, setups.REDUCTIONS: 1, setups.REDUCTIONS_10: 10}


class Watched:
    """A run of its own for a training."""

    def __init__(self, setup: str, training: Training, folder: Path) -> None:
        settings = wandb.Settings(silent=True)
        self.run = wandb.init(project="bench", mode="offline", dir=folder, settings=settings)
        if INTERVALS[setup]:
            self.run.watch(training.model, log="all", log_freq=INTERVALS[setup])

    def after_step(self, loss: torch.Tensor) -> None:
        self.run.log({"loss": loss.item()})

    def close(self) -> None:
        self.run.finish()


observe = Watched
