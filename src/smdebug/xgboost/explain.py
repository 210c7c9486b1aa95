"""What a model says of data: predictions, and what each feature has to do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smdebug.xgboost.naming import BIAS, feature_names
from smdebug.xgboost.source import NotAvailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.reductions import Array
    from smdebug.xgboost.data import Data
    from smdebug.xgboost.source import Named, Round


class OfValidation:
    """What there is one of for the validation data: the base of labels and predictions.

    Args:
        data: the validation data.
    """

    what = ""

    def __init__(self, data: Data | None) -> None:
        self._given = data

    def names(self, round: Round) -> Iterable[str]:
        return [self.what]

    @property
    def _data(self) -> Data:
        return _given(self._given, "validation_data")


class Labels(OfValidation):
    """The labels of the validation data."""

    what = "labels"

    def tensors(self, round: Round) -> Iterator[Named]:
        labels = self._data.matrix().get_label()
        if not labels.size:
            raise NotAvailable("validation_data has no labels")
        yield self.what, labels


class Predictions(OfValidation):
    """What the model predicts of the validation data."""

    what = "predictions"

    def tensors(self, round: Round) -> Iterator[Named]:
        matrix = self._data.whole(round.model)
        yield self.what, round.predict("validation_data", matrix)


class Shap:
    """What each feature contributes to predictions: the base of the sources that save it.

    Args:
        data: the training data.
        rows: of how many rows of it, at most.
    """

    what = ""

    def __init__(self, data: Data | None, rows: int) -> None:
        self._data = data
        self._rows = rows

    def names(self, round: Round) -> Iterable[str]:
        features = [""] if round.booster is None else feature_names(round.booster)
        # A feature of that name leaves no room for the bias itself, which comes last.
        columns = features if BIAS in features else [*features, BIAS]
        return [f"{self.what}/{column}" for column in columns]

    def _contributions(self, round: Round) -> Array:
        """Rows, then classes if there are several, then features and the bias."""
        if "contributions" not in round.memory:
            data = _given(self._data, "train_data").sample(self._rows, round.model)
            found = round.predict("train_data", data, contributions=True)
            round.memory["contributions"] = found
        contributions: Array = round.memory["contributions"]
        return contributions


class AverageShap(Shap):
    """The mean contribution of each feature over all rows, as `average_shap/<feature>`."""

    what = "average_shap"

    def tensors(self, round: Round) -> Iterator[Named]:
        values = self._contributions(round)
        means = values.mean(axis=0, dtype=np.float64).astype(values.dtype)
        for place, name in enumerate(self.names(round)):
            yield name, np.array(means[..., place], ndmin=1)


class FullShap(Shap):
    """The contributions of each feature, as `full_shap/<feature>`, and all, as `full_shap`."""

    what = "full_shap"

    def names(self, round: Round) -> Iterable[str]:
        return [self.what, *super().names(round)]

    def tensors(self, round: Round) -> Iterator[Named]:
        values = self._contributions(round)
        whole, *columns = self.names(round)
        yield whole, values
        for place, name in enumerate(columns):
            yield name, np.ascontiguousarray(values[..., place])


def _given(data: Data | None, key: str) -> Data:
    if data is None:
        raise NotAvailable(f"the hook was given no {key}; give it {key}=xgboost.DMatrix(...)")
    return data
