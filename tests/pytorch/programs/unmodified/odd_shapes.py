"""Shapes of training that exist, one after the other, in one process."""

import hashlib
from dataclasses import dataclass

import torch
from torch import nn

digest = hashlib.sha256()


def say(loss: torch.Tensor, *models: nn.Module) -> None:
    print("loss", loss.item())
    for model in models:
        for each in model.parameters():
            digest.update(each.detach().numpy().tobytes())


class Head(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(4, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs))


@dataclass(eq=True)
class Distance(nn.MSELoss):
    """One that has no hash."""

    def __post_init__(self) -> None:
        super().__init__()


torch.manual_seed(9)
inputs = torch.randn(8, 4)

# Two heads on one body.
body = nn.Linear(4, 4)
one, two = Head(body), Head(body)
optimizer = torch.optim.SGD([*one.parameters(), *two.head.parameters()], lr=0.1)
for _ in range(3):
    loss = one(inputs).square().mean() + two(inputs).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    say(loss, one, two)

# A generator of losses.
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    losses = [model(inputs).square().mean(), model(inputs).abs().mean()]
    optimizer.zero_grad()
    torch.autograd.backward(loss for loss in losses)
    optimizer.step()
    say(losses[0], model)

# A module of TorchScript, and a loss without a hash.
scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
optimizer = torch.optim.SGD(scripted.parameters(), lr=0.1)
distance = Distance()
for _ in range(3):
    loss = distance(scripted(inputs), inputs)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    say(loss, scripted)

# What torch.fx sees of a model with a loss in it.
graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()))
print("model", [node.op for node in graph.graph.nodes])
print("weights", digest.hexdigest())
