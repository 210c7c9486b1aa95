"""Small data sets, the same at every call, and a training run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost

if TYPE_CHECKING:
    from smdebug.reductions import Array

BINARY = {"objective": "binary:logistic", "max_depth": 3, "nthread": 1, "seed": 0}
FEATURES = 5


def features(rows: int = 400, seed: int = 0) -> Array:
    """Features as XGBoost holds them."""
    return np.random.default_rng(seed).normal(size=(rows, FEATURES)).astype(np.float32)


def labels(values: Array, classes: int = 2, seed: int = 1) -> Array:
    """Classes that the first two features tell, but for some noise."""
    noise = np.random.default_rng(seed).normal(size=len(values))
    score = values[:, 0] + values[:, 1] + 0.5 * noise
    edges = np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1])
    found: Array = np.digitize(score, edges)
    return found


def matrix(rows: int = 400, seed: int = 0, classes: int = 2, **options: Any) -> Any:
    """Features and labels as a DMatrix."""
    values = features(rows, seed)
    return xgboost.DMatrix(values, labels(values, classes), **options)


def train(
    hook: Any = None,
    rounds: int = 12,
    params: dict[str, Any] | None = None,
    data: Any = None,
    **options: Any,
) -> Any:
    """Trains on `data`, evaluated as `train`, and returns the booster."""
    data = matrix() if data is None else data
    options.setdefault("evals", [(data, "train")])
    callbacks = [*options.pop("callbacks", ()), *([] if hook is None else [hook])]
    return xgboost.train(
        BINARY if params is None else params, data, rounds,
        callbacks=callbacks, verbose_eval=False, **options,
    )  # fmt: skip
