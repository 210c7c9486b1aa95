"""What is known of a round without asking the model: its metrics, and the hyperparameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.xgboost.naming import SPREAD
from smdebug.xgboost.source import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.reductions import Array
    from smdebug.xgboost.source import Round


class Metrics:
    """The metrics of a round, as `<data set>-<metric>`."""

    what = "metrics"

    def names(self, round: Round) -> Iterable[str]:
        found = [name for name, _ in self._numbers(round)]
        # Something that all collections of metrics match, so that a run without any is noticed.
        return found or ["train-loss"]

    def tensors(self, round: Round) -> Iterator[tuple[str, Array]]:
        if not round.evals_log:
            raise NotAvailable(
                "training evaluates nothing; give it data sets to evaluate, such as "
                'evals=[(train, "train")], or eval_set in a scikit-learn estimator'
            )
        for name, number in self._numbers(round):
            yield name, np.array([number], np.float64)

    def _numbers(self, round: Round) -> Iterator[tuple[str, float]]:
        for data, metrics in round.evals_log.items():
            for metric, history in metrics.items():
                newest = history[-1]
                if isinstance(newest, tuple):
                    # Cross-validation: the mean over all folds, and how far they are apart.
                    yield f"{data}-{metric}", newest[0]
                    yield f"{data}-{metric}{SPREAD}", newest[1]
                else:
                    yield f"{data}-{metric}", newest


class Hyperparameters:
    """The hyperparameters, as `hyperparameters/<name>`.

    Args:
        given: what the user gave; None when he gave nothing.
    """

    what = "hyperparameters"

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        self._given = given

    def names(self, round: Round) -> Iterable[str]:
        return [f"hyperparameters/{name}" for name in self._given or {"": None}]

    def tensors(self, round: Round) -> Iterator[tuple[str, Array]]:
        if self._given is None:
            raise NotAvailable("the hook was given none; give it hyperparameters=params")
        for name, value in self._given.items():
            yield f"hyperparameters/{name}", _as_array(value)


def _as_array(value: Any) -> Array:
    """A hyperparameter as it is; as text where it is neither numbers nor text."""
    try:
        array = np.atleast_1d(np.array(value))
    except ValueError:
        # Lists of different lengths.
        array = np.array(None)
    if array.ndim == 1 and array.size and array.dtype.kind in "biufU":
        return array
    text = json.dumps(value, default=str) if isinstance(value, Mapping | list | tuple) else value
    return np.array([str(text)])
