"""Data that can be learned, made from a seed: points, images of patterns, text, noisy vectors.

A source is called with the number of a batch and always returns the same inputs and targets for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    Batch = tuple[torch.Tensor, torch.Tensor]
    Source = Callable[[int], Batch]

# Validation takes batches that no training reaches.
VALIDATION = 1_000_000


def generator(seed: int, number: int = 0) -> torch.Generator:
    """A generator of its own for each batch, so that the order of the batches does not matter."""
    return torch.Generator().manual_seed(1_000_003 * seed + number)


class Points:
    """Points that a small network of fixed weights puts into classes; a few are mislabelled.

    Args:
        seed: chooses the classes and the points.
        size: how many points a batch has.
        features: how many numbers a point has; each has mean 0 and variance 1.
        classes: how many classes there are; each is about as frequent as the others.
    """

    def __init__(self, seed: int, size: int = 64, features: int = 20, classes: int = 4) -> None:
        self.seed, self.size = seed, size
        self.features, self.classes = features, classes
        random = generator(seed, -1)
        self._first = torch.randn(features, 32, generator=random) / features**0.5
        self._last = torch.randn(32, classes, generator=random)
        # Without this some classes would be rare.
        points = torch.randn(4096, features, generator=random)
        self._middle = (torch.tanh(2 * points @ self._first) @ self._last).mean(0)

    def __call__(self, number: int) -> Batch:
        random = generator(self.seed, number)
        points = torch.randn(self.size, self.features, generator=random)
        scores = torch.tanh(2 * points @ self._first) @ self._last - self._middle
        noise = torch.randn(scores.shape, generator=random)
        return points, (scores + 0.3 * noise).argmax(1)


class Few:
    """The same few samples of a source again and again, shuffled; other samples for validation."""

    def __init__(self, source: Source, samples: int) -> None:
        self._source = source
        inputs, targets = source(0)
        self._inputs, self._targets = inputs[:samples], targets[:samples]

    def __call__(self, number: int) -> Batch:
        if number >= VALIDATION:
            return self._source(number)
        order = torch.randperm(len(self._inputs), generator=generator(0, number))
        return self._inputs[order], self._targets[order]


class Patterns:
    """Noisy images of stripes: their direction and width are the class.

    Args:
        seed: chooses the noise and where the stripes begin.
        size: how many images a batch has.
        pixels: height and width of an image.
        channels: how many colours it has.

    Every channel has mean 0 and about variance 1.
    """

    classes = 6

    def __init__(self, seed: int, size: int = 32, pixels: int = 12, channels: int = 3) -> None:
        self.seed, self.size, self.channels = seed, size, channels
        row = torch.arange(pixels, dtype=torch.float32)
        upright, level = torch.meshgrid(row, row, indexing="ij")
        directions = (upright, level, upright + level)
        self._angles = torch.stack([each * width for each in directions for width in (0.8, 1.7)])

    def __call__(self, number: int) -> Batch:
        random = generator(self.seed, number)
        labels = torch.randint(self.classes, (self.size,), generator=random)
        begin = 6.3 * torch.rand(self.size, 1, 1, 1, generator=random)
        colour = 1 + 0.3 * torch.randn(self.size, self.channels, 1, 1, generator=random)
        stripes = torch.sin(self._angles[labels].unsqueeze(1) + begin) * colour
        noise = torch.randn(stripes.shape, generator=random)
        return stripes + 0.7 * noise, labels


class Text:
    """Sentences of a language in which every word has two usual successors; 0 is padding.

    Args:
        seed: chooses the sentences; the language is always the same.
        size: how many sentences a batch has.
        length: to how many words sentences are padded.
        words: how many words the language has, padding included.
        shortest: how many words a sentence has at least.
        longest: how many words a sentence has at most; `length` when None.

    The targets are the inputs one word later.
    """

    def __init__(
        self,
        seed: int,
        size: int = 16,
        length: int = 24,
        words: int = 32,
        shortest: int = 18,
        longest: int | None = None,
    ) -> None:
        self.seed, self.size, self.length, self.words = seed, size, length, words
        self.shortest, self.longest = shortest, length if longest is None else longest
        random = generator(4, -1)
        self._next = torch.randint(1, words, (words, 2), generator=random)

    def __call__(self, number: int) -> Batch:
        random = generator(self.seed, number)
        text = torch.empty(self.size, self.length + 1, dtype=torch.long)
        text[:, 0] = torch.randint(1, self.words, (self.size,), generator=random)
        chance = torch.rand(text.shape, generator=random)
        usual = torch.randint(2, text.shape, generator=random)
        other = torch.randint(1, self.words, text.shape, generator=random)
        for place in range(1, self.length + 1):
            follows = self._next[text[:, place - 1], usual[:, place]]
            text[:, place] = torch.where(chance[:, place] < 0.85, follows, other[:, place])
        ends = torch.randint(self.shortest, self.longest + 1, (self.size, 1), generator=random)
        text[torch.arange(self.length + 1) >= ends] = 0
        return text[:, :-1], text[:, 1:]


class Signals:
    """Sequences of numbers; the class is the sign of a sum over all of them.

    Args:
        seed: chooses the sequences.
        size: how many sequences a batch has.
        length: how long a sequence is.
    """

    features, classes = 4, 2

    def __init__(self, seed: int, size: int = 32, length: int = 20) -> None:
        self.seed, self.size, self.length = seed, size, length

    def __call__(self, number: int) -> Batch:
        random = generator(self.seed, number)
        signals = torch.randn(self.size, self.length, self.features, generator=random)
        return signals, (signals[..., 0].sum(1) > 0).long()


class Vectors:
    """Noisy vectors that lie near a plane of few dimensions; the target is the vector itself."""

    def __init__(self, seed: int, size: int = 64, features: int = 48, dimensions: int = 6) -> None:
        self.seed, self.size, self.dimensions = seed, size, dimensions
        self.features = features
        self._plane = torch.randn(dimensions, features, generator=generator(seed, -1))
        self._plane /= dimensions**0.5

    def __call__(self, number: int) -> Batch:
        random = generator(self.seed, number)
        vectors = torch.randn(self.size, self.dimensions, generator=random) @ self._plane
        vectors = vectors + 0.1 * torch.randn(vectors.shape, generator=random)
        return vectors, vectors
