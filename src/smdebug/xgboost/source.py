"""What there is to save of a round, and what it takes to get it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from xgboost.core import XGBoostError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.reductions import Array


# Where in XGBoost's source it was noticed, and what was expected there, when words follow.
_PLACE = re.compile(r"^(?:\[[\d:]+\] \S+:\d+: )+(?:Check failed: .*? ?: (?=[A-Z]))?|[ :]+$")
_LONGEST = 300


# The name of a tensor and its value; a number by itself is one of shape (1,).
Named = tuple[str, "Array | float"]


class NotAvailable(Exception):
    """Something that was asked for is not there; the message says why, and training goes on.

    Args:
        message: why.
        for_good: it will not be there at later rounds of the training either.
    """

    def __init__(self, message: str, for_good: bool = True) -> None:
        super().__init__(message)
        self.for_good = for_good


def reason(error: Exception) -> str:
    """What an exception of XGBoost says: without the place in its source, and what called it.

    Example:
        >>> reason(Exception("[06:39:14] /src/gbm.h:62: Slice is not supported.\\nStack trace:"))
        'Slice is not supported.'
    """
    first = (str(error).splitlines() or [type(error).__name__])[0]
    said = _PLACE.sub("", first)
    # Lists of features may be long.
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]} ..."


@dataclass
class Round:
    """A round of boosting that has ended.

    Attributes:
        booster: the model; None in cross-validation, which trains several.
        index: which of the model's rounds it is.
        evals_log: the metrics of all rounds of this training, by data set and metric.
        memory: for sources: what several of them need.
        reported: how many values each metric had when the round began.
    """

    booster: Any
    index: int
    evals_log: Any
    memory: dict[str, Any] = field(default_factory=dict)
    reported: dict[tuple[str, str], int] = field(init=False)

    def __post_init__(self) -> None:
        self.reported = {key: len(values) for key, values in self._histories()}

    @property
    def model(self) -> Any:
        """The model.

        Raises:
            NotAvailable: there is no single one.
        """
        if self.booster is None:
            raise NotAvailable("cross-validation trains several models at once")
        return self.booster

    @property
    def took_place(self) -> bool:
        """Whether there is more than when it began: a round may be called off."""
        if self.booster is not None and self.booster.num_boosted_rounds() > self.index:
            return True
        return bool(self.metrics())

    def metrics(self) -> list[tuple[str, str, Any]]:
        """The metrics that were measured: data set, metric and value."""
        # Some are not, at some rounds; what they were before is not what they are.
        return [
            (*key, values[-1])
            for key, values in self._histories()
            if len(values) > self.reported.get(key, 0)
        ]

    @property
    def known_metrics(self) -> list[tuple[str, str]]:
        """The data set and name of each metric so far, measured at this round or not."""
        return [key for key, _ in self._histories()]

    def _histories(self) -> Iterator[tuple[tuple[str, str], Any]]:
        for data, metrics in self.evals_log.items():
            for metric, values in metrics.items():
                yield (data, metric), values

    def predict(self, key: str, data: Any, contributions: bool = False) -> Array:
        """What the model says of data that a user gave.

        Args:
            key: the name it was given under.
            data: the matrix.
            contributions: of each feature, instead of the prediction itself.

        Raises:
            NotAvailable: the model and the data do not fit together.
        """
        have, need = data.num_col(), self.model.num_features()
        # Where it computes contributions, XGBoost notices too few in the end, and too many not at
        # all: it writes to memory that is not its own.
        if have > need or (have < need and contributions):
            raise NotAvailable(
                f"{key} must have the {need} features that the model was trained with, got {have}"
            )
        try:
            found: Array = self.model.predict(data, pred_contribs=contributions)
        except (XGBoostError, ValueError, TypeError) as error:
            raise NotAvailable(f"the model cannot predict {key}: {reason(error)}") from error
        return found


class Source(Protocol):
    """Something that can be saved of a round; it is asked only when that is wanted.

    Attributes:
        what: what it is, for the messages.
    """

    what: str

    def names(self, round: Round) -> Iterable[str]:
        """The names of the tensors it may have at a round, found out at little cost."""

    def tensors(self, round: Round) -> Iterator[Named]:
        """Yields the tensors; the arrays are the caller's.

        Raises:
            NotAvailable: it has none.
        """
