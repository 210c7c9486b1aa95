"""Labels, predictions, and SHAP values: the contribution of each feature to a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smdebug.xgboost.naming import BIAS, feature_names
from smdebug.xgboost.source import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.reductions import Array
    from smdebug.xgboost.data import Data
    from smdebug.xgboost.rounds import Round
    from smdebug.xgboost.source import Named


class Labels:
    """The labels of the validation data.

    Args:
        data: the validation data.
    """

    what = "labels"

    def __init__(self, data: Data | None) -> None:
        self._data = data

    def names(self, round: Round) -> Iterable[str]:
        return [self.what]

    def tensors(self, round: Round) -> Iterator[Named]:
        labels = _required(self._data, "validation_data").matrix().get_label()
        if not labels.size:
            raise NotAvailable("validation_data has no labels")
        yield self.what, labels


class Predictions:
    """The predictions of the model for the validation data.

    Args:
        data: the validation data.
    """

    what = "predictions"

    def __init__(self, data: Data | None) -> None:
        self._data = data

    def names(self, round: Round) -> Iterable[str]:
        return [self.what]

    def tensors(self, round: Round) -> Iterator[Named]:
        matrix = _required(self._data, "validation_data").matrix_for(round.model)
        yield self.what, round.predict("validation_data", matrix)


class Shap:
    """SHAP values: the base class of the sources that save them.

    Args:
        data: the training data.
        rows: the most rows of it to use.
    """

    what = ""

    def __init__(self, data: Data | None, rows: int) -> None:
        self._data = data
        self._rows = rows

    def names(self, round: Round) -> Iterable[str]:
        features = [""] if round.booster is None else feature_names(round.booster)
        # The bias comes last; a feature of that name takes its place.
        columns = features if BIAS in features else [*features, BIAS]
        return [f"{self.what}/{column}" for column in columns]

    def _contributions(self, round: Round) -> Array:
        """Return SHAP values by row, class if there are several, and feature with the bias last."""
        if round.contributions is None:
            data = _required(self._data, "train_data").sample(self._rows, round.model)
            round.contributions = round.predict("train_data", data, contributions=True)
        return round.contributions


class AverageShap(Shap):
    """The mean contribution of each feature over all rows, as `average_shap/<feature>`."""

    what = "average_shap"

    def tensors(self, round: Round) -> Iterator[Named]:
        values = self._contributions(round)
        means = values.mean(axis=0, dtype=np.float64).astype(values.dtype)
        for column, name in enumerate(self.names(round)):
            yield name, np.array(means[..., column], ndmin=1)


class FullShap(Shap):
    """All contributions, as `full_shap`, and those of each feature, as `full_shap/<feature>`."""

    what = "full_shap"

    def names(self, round: Round) -> Iterable[str]:
        return [self.what, *super().names(round)]

    def tensors(self, round: Round) -> Iterator[Named]:
        values = self._contributions(round)
        whole, *columns = self.names(round)
        yield whole, values
        for column, name in enumerate(columns):
            yield name, np.ascontiguousarray(values[..., column])


def _required(data: Data | None, key: str) -> Data:
    if data is None:
        raise NotAvailable(f"the hook was given no {key}; give it {key}=xgboost.DMatrix(...)")
    return data
