"""The models of the gym: small ones of every usual kind."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def mlp(
    sizes: Sequence[int],
    activation: Callable[[], nn.Module] = nn.ReLU,
    dropout: float = 0.0,
) -> nn.Sequential:
    """Linear layers `fc0`, `fc1`, ... with activations `act0`, `act1`, ... between them."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    last = len(sizes) - 2
    for place, (before, after) in enumerate(itertools.pairwise(sizes)):
        layers[f"fc{place}"] = nn.Linear(before, after)
        if place < last:
            layers[f"act{place}"] = activation()
            if dropout:
                layers[f"drop{place}"] = nn.Dropout(dropout)
    return Mlp(layers)


class Mlp(nn.Sequential):
    """A multilayer perceptron; made by `mlp`."""


class Cnn(nn.Module):
    """Two convolutions with batch norm, the mean over the image, and a classifier."""

    def __init__(self, channels: int = 3, classes: int = 6, norm: bool = True) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=not norm)
        self.norm1 = nn.BatchNorm2d(16) if norm else nn.Identity()
        self.relu1 = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=not norm)
        self.norm2 = nn.BatchNorm2d(32) if norm else nn.Identity()
        self.relu2 = nn.ReLU()
        self.classifier = nn.Linear(32, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.pool(self.relu1(self.norm1(self.conv1(images))))
        features = self.relu2(self.norm2(self.conv2(features)))
        scores: torch.Tensor = self.classifier(features.mean((2, 3)))
        return scores


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        inner = self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(features)))))
        output: torch.Tensor = self.relu2(features + inner)
        return output


class ResNet(nn.Module):
    """A stem, residual blocks, and a classifier."""

    def __init__(self, channels: int = 3, classes: int = 6, blocks: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 16, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        self.blocks = nn.Sequential(*(Block(16) for _ in range(blocks)))
        self.classifier = nn.Linear(16, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.blocks(self.relu(self.norm(self.stem(images))))
        scores: torch.Tensor = self.classifier(features.mean((2, 3)))
        return scores


class Transformer(nn.Module):
    """Says for every word which one comes next."""

    def __init__(self, words: int, length: int, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.1, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)
        mask = torch.full((length, length), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        features = self.embedding(text) + self.position
        features = self.encoder(features, mask=self.mask)
        scores: torch.Tensor = self.head(self.norm(features))
        return scores.transpose(1, 2)


class Reader(nn.Module):
    """An embedding, an LSTM or GRU, and a prediction of the next word."""

    def __init__(self, words: int, kind: type[nn.Module] = nn.LSTM, width: int = 48) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 24, padding_idx=0)
        self.recurrent: Any = kind(24, width, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrent(self.embedding(text))
        scores: torch.Tensor = self.head(states)
        return scores.transpose(1, 2)


class Listener(nn.Module):
    """A recurrent network over numbers, and a class from its last state."""

    def __init__(
        self, features: int, classes: int, kind: Callable[..., nn.Module] = nn.RNN
    ) -> None:
        super().__init__()
        self.recurrent: Any = kind(features, 32, batch_first=True)
        self.head = nn.Linear(32, classes)

    def forward(self, signals: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrent(signals)
        scores: torch.Tensor = self.head(states[:, -1])
        return scores


class Autoencoder(nn.Module):
    """Squeezes vectors through a narrow middle and restores them."""

    def __init__(self, features: int, middle: int = 6) -> None:
        super().__init__()
        self.encoder = mlp([features, 32, middle], nn.Tanh)
        self.decoder = mlp([middle, 32, features], nn.Tanh)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        restored: torch.Tensor = self.decoder(self.encoder(vectors))
        return restored
