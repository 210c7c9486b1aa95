"""What the user gives a hook to explain a model with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from smdebug.config import validation
from smdebug.exceptions import SMDebugTypeError
from smdebug.xgboost.data import Data

DEFAULT_SHAP_SAMPLES = 10_000


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The arguments of a hook that are about the model, checked.

    Attributes:
        hyperparameters: the hyperparameters, by name.
        train_data: the data that SHAP values are computed for.
        validation_data: the data whose labels and predictions are saved.
        shap_samples: the most rows that SHAP values are computed for.
    """

    hyperparameters: Mapping[str, Any] | None = None
    train_data: Data | None = None
    validation_data: Data | None = None
    shap_samples: int = DEFAULT_SHAP_SAMPLES

    def replace(self, **given: Any) -> Inputs:
        """Return the same inputs with some replaced by what the user passed.

        Raises:
            SMDebugTypeError, SMDebugValueError: one of them is invalid.
        """
        return dataclasses.replace(self, **{key: _check(key, given[key]) for key in given})


def _check(key: str, value: Any) -> Any:
    if key == "shap_samples":
        return validation.whole_number(key, value, minimum=1)
    if value is None:
        return None
    if key != "hyperparameters":
        return Data(key, value)
    if not isinstance(value, Mapping):
        raise SMDebugTypeError(
            "hyperparameters must be a dict, such as the params of xgboost.train, got "
            f"{validation.short_repr(value)}"
        )
    return value
