"""What is known about a round without the model: metrics and hyperparameters."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.storage.format.dtypes import check_dtype
from smdebug.xgboost.naming import SPREAD, encodable
from smdebug.xgboost.source import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.reductions import Array
    from smdebug.xgboost.rounds import Round
    from smdebug.xgboost.source import Named


class Metrics:
    """The metrics of a round, as `<data set>-<metric>`."""

    what = "metrics"

    def names(self, round: Round) -> Iterable[str]:
        names = [encodable(f"{data}-{metric}") for data, metric in round.known_metrics]
        if round.booster is None:
            names += [f"{name}{SPREAD}" for name in names]
        # A name that all collections of metrics match: missing metrics are reported, then.
        return names or ["train-loss"]

    def tensors(self, round: Round) -> Iterator[Named]:
        if not round.evals_log:
            raise NotAvailable(
                "training evaluates nothing; give it data sets to evaluate, such as "
                'evals=[(train, "train")], or eval_set in a scikit-learn estimator',
                # The user's own metric may be evaluated at some rounds only.
                permanent=False,
            )
        for data, metric, value in round.metrics():
            name = encodable(f"{data}-{metric}")
            if isinstance(value, tuple):
                # Cross-validation: mean and standard deviation over all folds.
                yield name, float(value[0])
                yield f"{name}{SPREAD}", float(value[1])
            else:
                yield name, float(value)


class Hyperparameters:
    """The hyperparameters, as `hyperparameters/<name>`.

    Args:
        given: what the user passed; None for nothing.
    """

    what = "hyperparameters"

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        self._given = given

    def names(self, round: Round) -> Iterable[str]:
        return [encodable(f"hyperparameters/{key}") for key in self._given or {"": None}]

    def tensors(self, round: Round) -> Iterator[Named]:
        if self._given is None:
            raise NotAvailable("the hook was given none; give it hyperparameters=params")
        for key, value in self._given.items():
            yield encodable(f"hyperparameters/{key}"), _to_array(value)


def _to_array(value: Any) -> Array:
    """Return a hyperparameter as an array of numbers or strings; anything else as a string."""
    if isinstance(value, bool | int | float | str | np.generic | np.ndarray | list | tuple):
        with contextlib.suppress(Exception):
            # Fails for nested lists of different lengths, other objects and unknown dtypes.
            array = np.atleast_1d(np.array(value))
            check_dtype(array.dtype)
            if array.ndim == 1 and array.size and array.dtype.kind in "biufU":
                return array
    try:
        structured = isinstance(value, Mapping | list | tuple)
        text = json.dumps(value, default=str) if structured else str(value)
    except Exception:
        # An object whose `str` fails, a circular reference, keys that JSON does not have.
        text = f"<{type(value).__name__}>"
    return np.array([text])
