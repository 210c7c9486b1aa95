"""The training job of the demo: a deep classifier with a hook."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.pytorch import modes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEPTH, WIDTH, BATCH = 14, 64, 128
LEARNING_RATE = 0.01
SAVED_STEPS, EVALUATIONS = 150, 10

ACTIVATIONS: dict[str, type[nn.Module]] = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU}


class Classifier(nn.Sequential):
    """Linear layers with activations between them."""

    def __init__(self, activation: type[nn.Module]) -> None:
        super().__init__()
        for number in range(1, DEPTH + 1):
            layer = nn.Linear(2 if number == 1 else WIDTH, 2 if number == DEPTH else WIDTH)
            if activation is nn.ReLU:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            self.add_module(f"layer{number}", layer)
            if number < DEPTH:
                self.add_module(f"activation{number}", activation())


def spirals(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points on two intertwined spirals, labeled by spiral."""
    generator = torch.Generator().manual_seed(seed)
    radius = torch.rand(count, generator=generator).sqrt()
    labels = torch.arange(count) % 2
    angle = math.pi * (3.5 * radius + labels)
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    noise = 0.02 * torch.randn(count, 2, generator=generator)
    return 2 * (points + noise), labels


def make_hook(directory: Path, steps: int) -> smd.Hook:
    """Return a hook: all losses, gradient norms often, weights at the first and last step."""
    hook = smd.Hook(
        directory,
        include_collections=["gradients", "weights"],
        save_config=smd.SaveConfig(save_interval=1),
    )
    gradients, weights = hook.get_collection("gradients"), hook.get_collection("weights")
    gradients.save_config = smd.SaveConfig(save_interval=max(1, steps // SAVED_STEPS))
    gradients.reduction_config = smd.ReductionConfig(norms=["l2"])
    weights.save_config = smd.SaveConfig(save_interval=steps - 1)
    return hook


def train(name: str, directory: Path, steps: int) -> Iterator[float]:
    """Train one network with a hook; yield the loss of every step."""
    torch.manual_seed(0)
    points, labels = spirals(4000, seed=1)
    model = Classifier(ACTIVATIONS[name])
    loss_function = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    with make_hook(directory, steps) as hook:
        hook.register_module(model)
        hook.register_loss(loss_function)
        for step in range(steps):
            hook.set_mode(modes.TRAIN)
            batch = torch.randint(len(points), (BATCH,))
            loss = loss_function(model(points[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (step + 1) % max(1, steps // EVALUATIONS) == 0:
                evaluate(model, hook)
            yield loss.item()


def evaluate(model: nn.Module, hook: smd.Hook) -> None:
    """Save the accuracy on points that are not in the training data."""
    points, labels = spirals(1000, seed=2)
    hook.set_mode(modes.EVAL)
    with torch.no_grad():
        right = model(points).argmax(dim=1) == labels
    hook.save_scalar("accuracy", right.float().mean())
