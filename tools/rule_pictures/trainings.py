"""A training for every rule, with something wrong in it that the rule finds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The run that another is compared with lies beside it.
OTHER = "_other"


def train(rule: str, path: Path) -> None:
    """Trains what a rule finds something in, under that rule."""
    if rule in _TRAININGS:
        _TRAININGS[rule](path)
        return
    # Only here: XGBoost can be there without PyTorch.
    import torch

    from smdebug.testing.faults import FAULTS

    torch.set_num_threads(1)
    fault = next(each for each in FAULTS if each.rule_name == rule)
    fault.train(path)


def _growing_weights(path: Path) -> None:
    """The learning rate is far too high from a step on."""
    rule = {"rule": "TensorVariance", "collection_names": "weights", "max_threshold": 0.04}
    _perceptron(path, [rule], factor=12.0, step=100)


def _two_runs(path: Path) -> None:
    """The same training twice; the learning rate of the second is another from a step on."""
    other = path.with_name(path.name + OTHER)
    _perceptron(other, ["LossSpike"], factor=1.0, step=120)
    rule = {"rule": "SimilarAcrossRuns", "other_trial": str(other), "collection_names": "losses"}
    _perceptron(path, [rule], factor=0.1, step=120)


def _perceptron(path: Path, rules: list[Any], factor: float, step: int, steps: int = 200) -> None:
    import torch

    from smdebug.testing.faults import Training, planting
    from smdebug.testing.faults.healthy import perceptron

    def make() -> Any:
        job = perceptron(1)
        job.steps = steps
        planting.learning_rate(job, factor, step)
        return job

    torch.set_num_threads(1)
    Training("perceptron", "", make, every=1).train(path, rules)


def _exploding(path: Path) -> None:
    """The learning rate is far too high from a step on, and nothing holds the weights."""
    # The second rule has the norms of the gradients saved, which make the picture.
    _perceptron(path, ["ExplodingTensor", "GradientSpike"], factor=1000.0, step=40, steps=60)


def _one_feature(path: Path) -> None:
    """Boosted trees, on data of which two features tell everything."""
    random = np.random.default_rng(0)
    values = random.normal(size=(2000, 6))
    targets = np.sin(3 * values[:, 0]) + 0.4 * values[:, 1] + 0.2 * random.normal(size=2000)
    _boost(path, "FeatureImportanceOverweight", values, targets, "reg:squarederror", gamma=0.5)


def _classes(path: Path, rule: str, **options: Any) -> None:
    """Boosted trees, on data of two classes."""
    random = np.random.default_rng(0)
    values = random.normal(size=(2000, 6))
    score = 4 * values[:, 0] + values[:, 1] + 0.5 * values[:, 2] * values[:, 3]
    labels = score + random.normal(size=2000) > 0
    _boost(path, rule, values, labels, "binary:logistic", **options)


def _boost(
    path: Path, rule: str, values: Any, targets: Any, objective: str, gamma: float = 0.0,
    **options: Any,
) -> None:  # fmt: skip
    import xgboost

    from smdebug import SaveConfig
    from smdebug.xgboost import Hook

    train = xgboost.DMatrix(values[:1400], targets[:1400])
    validation = xgboost.DMatrix(values[1400:], targets[1400:])
    parameters = {
        "objective": objective, "max_depth": 6, "eta": 0.2, "gamma": gamma, "nthread": 1,
    }  # fmt: skip
    every = SaveConfig(save_interval=1)
    with Hook(path, save_config=every, rules=[rule], **options) as hook:
        xgboost.train(
            parameters, train, 60, evals=[(train, "train"), (validation, "validation")],
            callbacks=[hook], verbose_eval=False,
        )  # fmt: skip


_TRAININGS: dict[str, Callable[[Path], None]] = {
    "CreateXgboostReport": partial(
        _classes, rule="CreateXgboostReport", include_collections=["feature_importance"]
    ),
    "ExplodingTensor": _exploding,
    "FeatureImportanceOverweight": _one_feature,
    "SimilarAcrossRuns": _two_runs,
    "TensorVariance": _growing_weights,
    "TreeDepth": partial(_classes, rule="TreeDepth:depth=5"),
}
