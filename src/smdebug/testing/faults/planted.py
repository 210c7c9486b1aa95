"""The faults of the gym, each with the rule that must find it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import SGD, Adam

from smdebug.testing.faults import planting
from smdebug.testing.faults.data import Points, Signals
from smdebug.testing.faults.healthy import (
    convolutions,
    perceptron,
    reader,
    sigmoid_perceptron,
)
from smdebug.testing.faults.job import Job
from smdebug.testing.faults.models import Listener, mlp
from smdebug.testing.faults.ranks import DistributedTraining, old_layer_on_one_rank
from smdebug.testing.faults.stall import STALLED, StalledTraining
from smdebug.testing.faults.training import Fault, Training

if TYPE_CHECKING:
    from collections.abc import Callable


def _fault(
    name: str,
    sentence: str,
    healthy: Callable[[], Job],
    plant: Callable[[Job], object],
    rule: Any,
    every: int | None = None,
    **options: Any,
) -> Fault:
    def make() -> Job:
        job = healthy()
        plant(job)
        return job

    return Fault(name, sentence, Training(name, sentence, make, every=every), rule, **options)


def _deep_sigmoids() -> Job:
    model = mlp([20, *[40] * 9, 4], nn.Sigmoid)
    return Job(model, Points(1), SGD(model.parameters(), lr=0.1))


def _long_signals() -> Job:
    kind = partial(nn.RNN, nonlinearity="relu")
    model = Listener(Signals.features, Signals.classes, kind)
    return Job(model, Signals(2, length=40), SGD(model.parameters(), lr=0.01), clip=1.0)


def _longer() -> Job:
    job = perceptron(1)
    job.steps = 300
    return job


def _validated() -> Job:
    job = perceptron(3, SGD, lr=0.1, momentum=0.9)
    job.validate_every = 10
    return job


def _well_validated() -> Job:
    job = convolutions(23)
    job.validation_batches = 8
    return job


def _endless() -> Job:
    job = perceptron(24, Adam, lr=5e-3)
    job.steps, job.validate_every = 300, 10
    return job


FAULTS: list[Fault] = [
    _fault(
        "exploding gradients",
        "A recurrent network of 40 time steps multiplies its gradients by 1.2 at each, unclipped.",
        _long_signals,
        partial(planting.growing_gradients, factor=1.2),
        "ExplodingTensor",
        within=10,
    ),
    _fault(
        "gradient spike",
        "The samples of one batch are a hundred times too large, and their labels are mixed up.",
        partial(perceptron, 4),
        partial(planting.outliers_in_batch, factor=100.0, step=120),
        "GradientSpike",
        every=1,
        step=120,
    ),
    _fault(
        "vanishing gradients",
        "Nine layers of sigmoids: hardly any gradient reaches the first of them.",
        _deep_sigmoids,
        lambda job: None,
        "VanishingGradient",
        within=10,
        tensor=r"^gradient/Mlp_fc0\.",
    ),
    _fault(
        "dead relu",
        "A bad update pushes all biases of a layer down; no ReLU behind it is ever active again.",
        partial(perceptron, 5),
        partial(planting.dead_layer, layer="fc1", step=65),
        "DeadRelu",
        step=65,
        within=30,
        tensor="^act1_output_0$",
    ),
    _fault(
        "saturated sigmoid",
        "Inputs arrive in raw units, around 300: the sigmoids behind them are at their ends.",
        partial(sigmoid_perceptron, 6),
        partial(planting.raw_units, offset=300.0, scale=1.0, step=65),
        "SaturatedActivation",
        step=65,
        within=30,
        tensor="^act0_input_0$",
    ),
    _fault(
        "all-zero initialisation",
        "Every weight and bias begins at zero.",
        partial(perceptron, 7),
        planting.zero_weights,
        {"rule": "AllZero", "collection_names": "weights"},
        settings="it looks at nothing unless it is told what",
    ),
    _fault(
        "huge initialisation",
        "All weights begin thirty times too large.",
        partial(perceptron, 8, SGD, lr=0.01),
        partial(planting.huge_weights, factor=30.0),
        "PoorWeightInitialization",
        within=20,
    ),
    _fault(
        "frozen layer",
        "A layer is computed under no_grad: neither it nor what comes before it learns.",
        partial(perceptron, 9),
        partial(planting.unreached_layer, layer="fc1"),
        "FrozenParameter",
        within=40,
        tensor=r"Mlp_fc[01]\.",
    ),
    _fault(
        "optimizer misses parameters",
        "The last layer was replaced after the optimizer had been made.",
        partial(perceptron, 10),
        planting.forgotten_head,
        "FrozenParameter",
        within=40,
        tensor=r"Mlp_fc2\.",
    ),
    _fault(
        "learning rate x1000",
        "The learning rate becomes a thousand times larger.",
        partial(perceptron, 11),
        partial(planting.learning_rate, factor=1000.0, step=120),
        "LossSpike",
        every=1,
        step=120,
        within=5,
    ),
    _fault(
        "learning rate too low",
        "The learning rate is a thousand million times smaller.",
        partial(perceptron, 21),
        partial(planting.learning_rate, factor=1e-9, step=65),
        "WeightUpdateRatio",
        every=1,
        step=65,
        within=60,
        tensor=r"^Mlp_fc\d\.weight$",
    ),
    _fault(
        "learning rate zero",
        "A schedule brings the learning rate to zero too early.",
        partial(perceptron, 22),
        partial(planting.learning_rate, factor=0.0, step=65),
        {"rule": "UnchangedTensor", "collection_names": "weights"},
        step=65,
        within=40,
        tensor=r"^Mlp_fc\d\.weight$",
        settings="it looks at nothing unless it is told what",
    ),
    _fault(
        "NaN in one batch",
        "One number of one sample of one batch is NaN.",
        partial(perceptron, 12),
        partial(planting.nan_in_batch, step=67),
        "NonFinite",
        every=1,
        step=67,
        tensor="^Mlp_input_0$",
    ),
    _fault(
        "NaN in a backward",
        "The backward of what follows the layer fc1 returns NaN.",
        partial(perceptron, 13),
        partial(planting.nan_in_backward, layer="fc1", step=67),
        "NonFinite",
        every=1,
        step=67,
        tensor=r"^gradient/Mlp_fc1\.",
    ),
    _fault(
        "label shuffle",
        "Labels have nothing to do with the inputs.",
        _longer,
        planting.shuffled_labels,
        "LossNotDecreasing",
        every=1,
        within=300,
    ),
    _fault(
        "mixed-up classes",
        "Whoever labelled the images could not tell two of the six classes apart.",
        _well_validated,
        partial(planting.mixed_classes, first=2, second=3),
        "Confusion",
        every=1,
        within=300,
    ),
    _fault(
        "class imbalance",
        "Of one class only one sample in twenty-five is there.",
        partial(perceptron, 15),
        partial(planting.rare_class, one_in=25),
        "ClassImbalance",
        within=120,
    ),
    _fault(
        "unnormalised images",
        "Images have values from 0 to 1 instead of mean 0.",
        partial(convolutions, 16),
        partial(planting.raw_units, offset=0.5, scale=0.15),
        "CheckInputImages",
        within=180,
    ),
    _fault(
        "missing zero_grad",
        "Gradients are not set to zero any more: each update is made of all batches since.",
        partial(perceptron, 17, SGD, lr=0.03, momentum=0.9),
        partial(planting.no_zero_grad, step=100),
        "LossNotDecreasing",
        every=1,
        step=100,
        within=40,
    ),
    _fault(
        "overfit on few samples",
        "Training sees the same 24 samples again and again.",
        _validated,
        partial(planting.few_samples, samples=24),
        "Overfit",
        within=60,
    ),
    _fault(
        "trained too long",
        "Training goes on long after there was something to learn.",
        _endless,
        lambda job: None,
        "Overtraining",
        # What can be learned is learned after about 80 batches and 8 validations.
        step=96,
        within=200,
    ),
    Fault(
        "stalled loop",
        "The training loop hangs.",
        StalledTraining("stalled loop", "The training loop hangs.", partial(perceptron, 18)),
        {"rule": STALLED, "threshold": 4},
        # Step 59 is over only when step 60 begins: nobody outside has seen it.
        step=58,
        settings="half an hour, the default, is too long to wait for here",
    ),
    Fault(
        "one rank not synchronised",
        "Rank 1 takes the weights of a layer from an old copy of its own.",
        DistributedTraining(
            "one rank not synchronised",
            "Rank 1 takes the weights of a layer from an old copy of its own.",
            partial(perceptron, 19),
            plant=old_layer_on_one_rank,
        ),
        "ReplicaDivergence",
        step=60,
        within=20,
        tensor=r"fc1\.weight",
    ),
    _fault(
        "padding-heavy text",
        "Sentences of at most 16 words are padded to 48.",
        partial(reader, 20),
        partial(planting.padded_text, length=48, longest=16),
        "NLPSequenceRatio",
        within=20,
        tensor="embedding",
    ),
]
