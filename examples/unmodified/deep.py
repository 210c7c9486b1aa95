"""Twelve layers of sigmoids, which do not learn, in plain PyTorch: a rule finds out why.

smdebug run --every 10 --rules VanishingGradient,NonFinite -- examples/unmodified/deep.py
"""

import torch
from torch import nn


def main(steps: int = 500) -> None:
    torch.manual_seed(0)
    layers = [part for _ in range(12) for part in (nn.Linear(16, 16), nn.Sigmoid())]
    model = nn.Sequential(*layers, nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_function = nn.CrossEntropyLoss()
    for _ in range(steps):
        inputs = torch.randn(64, 16)
        loss = loss_function(model(inputs), (inputs.sum(dim=1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}, as good as guessing")


if __name__ == "__main__":
    main()
