"""Models that several tests train."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    """Two layers and dropout, so that the random generator matters."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.relu = nn.ReLU()
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.drop(self.relu(self.first(x))))
        return out


def batch(size: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs for `Net` and labels."""
    return torch.randn(size, 4), torch.randint(0, 3, (size,))


def sgd(*modules: nn.Module) -> torch.optim.Optimizer:
    """An optimizer with a memory."""
    parameters = [parameter for module in modules for parameter in module.parameters()]
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """One step of training, as a script has it; returns the loss."""
    x, y = batch()
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss
