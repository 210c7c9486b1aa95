"""Planting faults: each function takes a healthy job and breaks one thing in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from smdebug.testing.faults.data import Few, Text, generator

if TYPE_CHECKING:
    from smdebug.testing.faults.data import Batch
    from smdebug.testing.faults.job import Job


def linear_layers(job: Job) -> list[Any]:
    """The linear layers of a job's model, from the input on."""
    return [layer for layer in job.model.modules() if isinstance(layer, nn.Linear)]


# ---- weights


def zero_weights(job: Job) -> None:
    """Every weight and bias begins at zero."""
    for parameter in job.model.parameters():
        nn.init.zeros_(parameter)


def huge_weights(job: Job, factor: float) -> None:
    """All weights begin too large."""
    for layer in linear_layers(job):
        layer.weight.data.mul_(factor)


def dead_layer(job: Job, layer: str, step: int) -> None:
    """A bad update pushes all biases of a layer so far down that its ReLUs are never active."""
    linear: Any = job.model.get_submodule(layer)
    job.before[step] = lambda: linear.bias.data.sub_(100)


# ---- what is trained


def unreached_layer(job: Job, layer: str) -> None:
    """A layer is computed under no_grad, as a piece of evaluation code in the wrong place does."""
    module: Any = job.model.get_submodule(layer)
    module.forward = torch.no_grad()(module.forward)


def forgotten_head(job: Job) -> None:
    """The last layer is replaced after the optimizer was made, which goes on with the old one."""
    old = linear_layers(job)[-1]
    new = nn.Linear(old.in_features, old.out_features)
    name = next(name for name, module in job.model.named_modules() if module is old)
    setattr(job.model, name, new)


def learning_rate(job: Job, factor: float, step: int) -> None:
    """The learning rate is wrong by a factor from a step on."""

    def change() -> None:
        for group in job.optimizer.param_groups:
            group["lr"] *= factor

    job.before[step] = change


def no_zero_grad(job: Job, step: int) -> None:
    """Gradients are never set to zero from a step on: each update is made of all batches since."""
    job.before[step] = lambda: setattr(job, "clears_gradients", False)


def growing_gradients(job: Job, factor: float) -> None:
    """A recurrent network multiplies gradients at each time step, and nothing clips them."""
    recurrent: Any = job.model.get_submodule("recurrent")
    recurrent.weight_hh_l0.data.copy_(factor * torch.eye(recurrent.hidden_size))
    job.clip = None


def padded_text(job: Job, length: int, longest: int) -> None:
    """Sentences are padded far beyond the longest of them."""
    text: Any = job.source
    job.source = Text(text.seed, text.size, length, text.words, shortest=3, longest=longest)


class NanInBackward(torch.autograd.Function):
    """Passes a tensor on unchanged; its gradient is NaN, as that of a square root of 0."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * float("nan")


def nan_in_backward(job: Job, layer: str, step: int) -> None:
    """The backward of what follows a layer returns NaN."""
    module: Any = job.model.get_submodule(layer)
    forward = module.forward

    def spoil() -> None:
        module.forward = lambda tensor: NanInBackward.apply(forward(tensor))

    job.before[step] = spoil


# ---- data


def nan_in_batch(job: Job, step: int) -> None:
    """One number of one sample of one batch is NaN."""
    source = job.source

    def spoiled(number: int) -> Batch:
        inputs, targets = source(number)
        if number == step:
            inputs[3, 1] = float("nan")
        return inputs, targets

    job.source = spoiled


def outliers_in_batch(job: Job, factor: float, step: int) -> None:
    """The samples of one batch are too large by a factor, and their labels wrong."""
    source = job.source

    def spoiled(number: int) -> Batch:
        inputs, targets = source(number)
        return (factor * inputs, targets.flip(0)) if number == step else (inputs, targets)

    job.source = spoiled


def raw_units(job: Job, offset: float, scale: float, step: int = 0) -> None:
    """Inputs are no longer normalised from a step on."""
    source = job.source

    def raw(number: int) -> Batch:
        inputs, targets = source(number)
        return (offset + scale * inputs if number >= step else inputs), targets

    job.source = raw


def shuffled_labels(job: Job) -> None:
    """Labels have nothing to do with the inputs."""
    source = job.source

    def shuffled(number: int) -> Batch:
        inputs, targets = source(number)
        order = torch.randperm(len(targets), generator=generator(99, number))
        return inputs, targets[order]

    job.source = shuffled


def rare_class(job: Job, one_in: int) -> None:
    """Of one class only one sample in many is left."""
    source = job.source

    def imbalanced(number: int) -> Batch:
        inputs, targets = source(number)
        chance = torch.rand(len(targets), generator=generator(98, number))
        kept = (targets != 0) | (chance < 1 / one_in)
        return inputs[kept], targets[kept]

    job.source = imbalanced


def mixed_classes(job: Job, first: int, second: int) -> None:
    """Whoever labelled the data could not tell two classes apart."""
    source = job.source

    def mixed(number: int) -> Batch:
        inputs, targets = source(number)
        either = (targets == first) | (targets == second)
        guess = torch.rand(targets.shape, generator=generator(97, number)) < 0.5
        return inputs, torch.where(either, torch.where(guess, first, second), targets)

    job.source = mixed


def few_samples(job: Job, samples: int) -> None:
    """Training sees the same few samples again and again."""
    job.source = Few(job.source, samples)
