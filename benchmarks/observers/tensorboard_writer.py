"""TensorBoard: histograms of parameters and gradients, and the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils.tensorboard import SummaryWriter

from benchmarks import setups

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from benchmarks.trainings import Training

# How often there are histograms; of the losses alone there are none.
INTERVALS = {setups.LOSSES: 0, setups.REDUCTIONS: 1, setups.REDUCTIONS_10: 10}


class ExportResult:
    """A writer that is told about a training."""

    def __init__(self, setup: str, training: Training, folder: Path) -> None:
        self.writer = SummaryWriter(str(folder))
        self.parameters = list(training.model.named_parameters())
        self.interval = INTERVALS[setup]
        self.number = 0

    def after_step(self, loss: torch.Tensor) -> None:
        self.writer.add_scalar("loss", loss.item(), self.number)
        if self.interval and self.number % self.interval == 0:
            for name, parameter in self.parameters:
                self.writer.add_histogram(name, parameter, self.number)
                self.writer.add_histogram(f"{name}.grad", parameter.grad, self.number)
        self.number += 1

    def close(self) -> None:
        self.writer.close()


observe = ExportResult
