"""Plain PyTorch, without a word of Tornasole: `smdebug run` saves what happens inside of it.

smdebug run --save gradients --every 50 -- examples/unmodified/train.py --steps 200
"""

import argparse

import torch
from torch import nn
from torch.nn import functional


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.second = nn.Linear(32, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rate", type=float, default=0.01)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=arguments.rate)
    for step in range(arguments.steps):
        inputs = torch.randn(64, 8)
        loss = functional.cross_entropy(network(inputs), (inputs.sum(dim=1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
