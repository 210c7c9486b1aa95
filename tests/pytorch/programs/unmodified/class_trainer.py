"""A trainer of its own class, with an evaluation after every epoch."""

import argparse
import hashlib
from typing import Any

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
        # How many features there are is found out by trying, as many scripts do.
        size = self.features(torch.zeros(1, 1, 8, 8)).shape[1]
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(size, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.dropout(self.features(images)))


class Trainer:
    def __init__(self, model: nn.Module, rate: float) -> None:
        self.model = model
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate)

    def train(self, batches: list[Any]) -> None:
        self.model.train()
        for images, labels in batches:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(images), labels)
            loss.backward()
            self.optimizer.step()

    def evaluate(self, batches: list[Any]) -> float:
        self.model.eval()
        with torch.no_grad():
            losses = [self.criterion(self.model(images), labels) for images, labels in batches]
        return float(torch.stack(losses).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.01)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    batches = [(torch.randn(8, 1, 8, 8), torch.randint(3, (8,))) for _ in range(5)]
    trainer = Trainer(Net(), arguments.rate)
    for _ in range(arguments.epochs):
        trainer.train(batches)
        print("loss", trainer.evaluate(batches[:2]))
    weights = b"".join(each.numpy().tobytes() for each in trainer.model.state_dict().values())
    print("weights", hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main()
