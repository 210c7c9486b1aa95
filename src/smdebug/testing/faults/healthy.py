"""Trainings in which nothing is wrong: rules at their default settings find nothing in them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from torch import nn
from torch.optim import SGD, Adam, AdamW, RMSprop
from torch.optim.lr_scheduler import LambdaLR, MultiStepLR, OneCycleLR

from smdebug.testing.faults.data import Patterns, Points, Signals, Text, Vectors
from smdebug.testing.faults.job import Job
from smdebug.testing.faults.models import (
    Autoencoder,
    Cnn,
    Listener,
    Reader,
    ResNet,
    Transformer,
    mlp,
)
from smdebug.testing.faults.ranks import DistributedTraining
from smdebug.testing.faults.training import Training


def perceptron(seed: int = 0, kind: Any = SGD, **options: Any) -> Job:
    """A multilayer perceptron on points."""
    model = mlp([20, 64, 64, 4])
    return Job(model, Points(seed), kind(model.parameters(), **(options or {"lr": 0.1})))


def perceptron_with_dropout(seed: int = 0) -> Job:
    """One with dropout and weight decay, validated now and then."""
    model = mlp([20, 96, 96, 4], dropout=0.2)
    optimizer = AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    return Job(model, Points(seed), optimizer, validate_every=20)


def deep_perceptron(seed: int = 0) -> Job:
    """Ten layers of tanh, initialised for it."""
    model = mlp([20, *[40] * 9, 4], nn.Tanh)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight, nn.init.calculate_gain("tanh"))
    return Job(model, Points(seed), SGD(model.parameters(), lr=0.03, momentum=0.9))


def sigmoid_perceptron(seed: int = 0) -> Job:
    """Two layers of sigmoids."""
    model = mlp([20, 64, 64, 4], nn.Sigmoid)
    return Job(model, Points(seed), Adam(model.parameters(), lr=5e-3))


def accumulated(seed: int = 0) -> Job:
    """Weights updated after every fourth batch, the learning rate lowered twice."""
    model = mlp([20, 64, 64, 4])
    optimizer = SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)
    schedule = MultiStepLR(optimizer, [40, 60], 0.3)
    return Job(model, Points(seed), optimizer, steps=320, schedule=schedule, accumulate=4)


def convolutions(seed: int = 0, kind: Any = SGD, **options: Any) -> Job:
    """A convolutional network with batch norm on images, validated now and then."""
    model = Cnn()
    options = options or {"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}
    optimizer = kind(model.parameters(), **options)
    return Job(model, Patterns(seed), optimizer, validate_every=25)


def plain_convolutions(seed: int = 0) -> Job:
    """A convolutional network without batch norm."""
    model = Cnn(norm=False)
    return Job(model, Patterns(seed), Adam(model.parameters(), lr=3e-3))


def residual(seed: int = 0) -> Job:
    """A residual network whose learning rate rises and falls in one cycle."""
    model = ResNet()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = OneCycleLR(optimizer, max_lr=0.1, total_steps=200)
    return Job(model, Patterns(seed), optimizer, schedule=schedule)


def transformer(seed: int = 0) -> Job:
    """A transformer that predicts the next word, with warm-up and cosine decay."""
    text = Text(seed)
    model = Transformer(text.words, text.length)
    optimizer = AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
    steps = 200
    schedule = LambdaLR(optimizer, lambda step: warm_up_and_cosine(step, 20, steps))
    loss = nn.CrossEntropyLoss(ignore_index=0)
    return Job(model, text, optimizer, loss, steps, schedule=schedule, clip=1.0)


def reader(seed: int = 0, kind: type[nn.Module] = nn.LSTM) -> Job:
    """An LSTM or GRU that predicts the next word, with clipped gradients."""
    text = Text(seed)
    model = Reader(text.words, kind)
    loss = nn.CrossEntropyLoss(ignore_index=0)
    return Job(model, text, Adam(model.parameters(), lr=1e-2), loss, steps=150, clip=1.0)


def listener(seed: int = 0) -> Job:
    """A plain recurrent network on signals, with clipped gradients."""
    model = Listener(Signals.features, Signals.classes, nn.RNN)
    return Job(model, Signals(seed), RMSprop(model.parameters(), lr=2e-3), steps=200, clip=1.0)


def autoencoder(seed: int = 0) -> Job:
    """An autoencoder with a mean squared error."""
    vectors = Vectors(seed)
    model = Autoencoder(vectors.features)
    return Job(model, vectors, Adam(model.parameters(), lr=3e-3), nn.MSELoss(), steps=300)


def warm_up_and_cosine(step: int, warm_up: int, steps: int) -> float:
    """The factor of the learning rate: rises to 1 in a line, falls to 0 in half a cosine."""
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up)))


# Confusion asks for a model that is right in 90 % of what it predicts of each class. It judges the
# result of a training, not the training.
SHORT = {"Confusion": "trained for seconds, the perceptrons are right in 73 to 80 % of the points"}
NEXT_WORDS = {"Confusion": "no model knows the next word in 90 % of the cases"}

HEALTHY: list[Training] = [
    Training(
        "mlp, sgd",
        "A perceptron on points, with plain gradient descent.",
        partial(perceptron, 1),
        explained=SHORT,
    ),
    Training(
        "mlp, momentum",
        "A perceptron with momentum, long after it has learned what there is to learn.",
        partial(perceptron, 2, SGD, lr=0.03, momentum=0.9),
        every=1,
        explained=SHORT,
    ),
    Training(
        "mlp, adam",
        "A perceptron with Adam.",
        partial(perceptron, 3, Adam, lr=3e-3),
        explained=SHORT,
    ),
    Training(
        "mlp, adamw, dropout",
        "A perceptron with dropout, weight decay and validation.",
        partial(perceptron_with_dropout, 4),
        explained=SHORT,
    ),
    Training(
        "deep tanh mlp",
        "Ten layers of tanh with Xavier's initialisation and momentum.",
        partial(deep_perceptron, 5),
        every=1,
        explained=SHORT,
    ),
    Training(
        "sigmoid mlp",
        "Two layers of sigmoids with Adam.",
        partial(sigmoid_perceptron, 6),
        explained=SHORT,
    ),
    Training(
        "mlp, accumulated",
        "Gradients of four batches together, Nesterov's momentum, a learning rate in steps.",
        partial(accumulated, 7),
        every=1,
        explained=SHORT,
    ),
    Training(
        "cnn, momentum",
        "Convolutions with batch norm, momentum and weight decay, and validation.",
        partial(convolutions, 8),
        every=1,
    ),
    Training(
        "cnn, adam",
        "Convolutions with batch norm and Adam, and validation.",
        partial(convolutions, 9, Adam, lr=2e-3),
    ),
    Training(
        "plain cnn, adam",
        "Convolutions without batch norm.",
        partial(plain_convolutions, 10),
    ),
    Training(
        "resnet, one cycle",
        "Residual blocks; the learning rate rises and falls.",
        partial(residual, 11),
    ),
    Training(
        "transformer, adamw",
        "Next words with a transformer; warm-up, cosine decay, clipped gradients.",
        partial(transformer, 12),
        every=1,
        explained=NEXT_WORDS,
    ),
    Training(
        "lstm, adam",
        "Next words with an LSTM and clipped gradients.",
        partial(reader, 13),
        every=1,
        explained=NEXT_WORDS,
    ),
    Training(
        "gru, adam",
        "Next words with a GRU and clipped gradients.",
        partial(reader, 14, nn.GRU),
        explained=NEXT_WORDS,
    ),
    Training(
        "rnn, rmsprop",
        "Signals with a plain recurrent network and clipped gradients.",
        partial(listener, 15),
        every=1,
    ),
    Training(
        "autoencoder, adam",
        "Vectors restored from a narrow middle.",
        partial(autoencoder, 16),
    ),
    DistributedTraining(
        "mlp, two ranks",
        "A perceptron on two processes with DistributedDataParallel.",
        partial(perceptron, 17),
        explained=SHORT,
    ),
]
