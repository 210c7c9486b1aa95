"""What is known of a round without asking the model: its metrics, and the hyperparameters."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.storage.format.dtypes import check_dtype
from smdebug.xgboost.naming import SPREAD, fit_name
from smdebug.xgboost.source import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.reductions import Array
    from smdebug.xgboost.source import Named, Round

_STRUCTURES = (Mapping, list, tuple)


class Metrics:
    """The metrics of a round, as `<data set>-<metric>`."""

    what = "metrics"

    def names(self, round: Round) -> Iterable[str]:
        found = [fit_name(f"{data}-{metric}") for data, metric in round.known_metrics]
        if round.booster is None:
            found += [f"{name}{SPREAD}" for name in found]
        # Something that all collections of metrics match, so that a run without any is noticed.
        return found or ["train-loss"]

    def tensors(self, round: Round) -> Iterator[Named]:
        if not round.evals_log:
            raise NotAvailable(
                "training evaluates nothing; give it data sets to evaluate, such as "
                'evals=[(train, "train")], or eval_set in a scikit-learn estimator',
                # A metric of one's own may be measured at some rounds only.
                for_good=False,
            )
        for name, number in self._numbers(round):
            yield name, float(number)

    def _numbers(self, round: Round) -> Iterator[tuple[str, float]]:
        for data, metric, value in round.metrics():
            name = fit_name(f"{data}-{metric}")
            if isinstance(value, tuple):
                # Cross-validation: the mean over all folds, and how far they are apart.
                yield name, value[0]
                yield f"{name}{SPREAD}", value[1]
            else:
                yield name, value


class Hyperparameters:
    """The hyperparameters, as `hyperparameters/<name>`.

    Args:
        given: what the user gave; None when that is nothing.
    """

    what = "hyperparameters"

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        self._given = given

    def names(self, round: Round) -> Iterable[str]:
        return [fit_name(f"hyperparameters/{key}") for key in self._given or {"": None}]

    def tensors(self, round: Round) -> Iterator[Named]:
        if self._given is None:
            raise NotAvailable("the hook was given none; give it hyperparameters=params")
        for key, value in self._given.items():
            yield fit_name(f"hyperparameters/{key}"), _as_array(value)


def _as_array(value: Any) -> Array:
    """A hyperparameter as it is; as text where it is neither numbers nor text."""
    if isinstance(value, bool | int | float | str | np.generic | np.ndarray | list | tuple):
        with contextlib.suppress(Exception):
            # Not so: lists of different lengths, or of somebody's objects; numbers of other types.
            array = np.atleast_1d(np.array(value))
            check_dtype(array.dtype)
            if array.ndim == 1 and array.size and array.dtype.kind in "biufU":
                return array
    return np.array([_text(value)])


def _text(value: Any) -> str:
    try:
        return json.dumps(value, default=str) if isinstance(value, _STRUCTURES) else str(value)
    except Exception:
        # Somebody else's object; a circle; keys that JSON has not.
        return f"<{type(value).__name__}>"
