"""The rounds of boosting, and which steps they are."""

from __future__ import annotations

import logging
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xgboost.core import XGBoostError

from smdebug.xgboost.source import NotAvailable, error_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.reductions import Array

logger = logging.getLogger("smdebug.hook")


@dataclass
class Round:
    """A round of boosting.

    Attributes:
        index: its number among the rounds of the model.
        evals_log: the metrics of all rounds of this training run, by data set and metric.
        booster: the model once the round has ended; None in cross-validation, which trains several.
        contributions: the SHAP values, which several sources share; None until they are computed.
        reported: how many values each metric had when the round began.
    """

    index: int
    evals_log: Any
    booster: Any = None
    contributions: Array | None = None
    reported: dict[tuple[str, str], int] = field(init=False)

    def __post_init__(self) -> None:
        self.reported = {key: len(values) for key, values in self._histories()}

    @property
    def model(self) -> Any:
        """The model.

        Raises:
            NotAvailable: there are several.
        """
        if self.booster is None:
            raise NotAvailable("cross-validation trains several models at once")
        return self.booster

    @property
    def took_place(self) -> bool:
        """Whether the round was completed: a callback may end training before it is."""
        if self.booster is not None and self.booster.num_boosted_rounds() > self.index:
            return True
        return bool(self.metrics())

    def metrics(self) -> list[tuple[str, str, Any]]:
        """Return the metrics that were evaluated at this round: data set, metric and value."""
        return [
            (*key, values[-1])
            for key, values in self._histories()
            if len(values) > self.reported.get(key, 0)
        ]

    @property
    def known_metrics(self) -> list[tuple[str, str]]:
        """The data set and name of each metric so far, evaluated at this round or not."""
        return [key for key, _ in self._histories()]

    def _histories(self) -> Iterator[tuple[tuple[str, str], Any]]:
        for data, metrics in self.evals_log.items():
            for metric, values in metrics.items():
                yield (data, metric), values

    def predict(self, key: str, data: Any, contributions: bool = False) -> Array:
        """Return the predictions of the model.

        Args:
            key: the name of the argument that the data was passed as.
            data: the matrix.
            contributions: return the SHAP values of each feature instead.

        Raises:
            NotAvailable: the data does not fit the model.
        """
        columns, features = data.num_col(), self.model.num_features()
        # With contributions XGBoost notices missing columns late, and additional ones not at all:
        # it writes past the end of its memory.
        if columns > features or (columns < features and contributions):
            raise NotAvailable(
                f"{key} must have the {features} features that the model was trained with, "
                f"got {columns}"
            )
        try:
            predictions: Array = self.model.predict(data, pred_contribs=contributions)
        except (XGBoostError, ValueError, TypeError) as error:
            raise NotAvailable(f"the model cannot predict {key}: {error_message(error)}") from error
        return predictions


class RoundCounter:
    """Counts the rounds of one training run at a time.

    A step is a round of the model. The rounds of another model follow those of the last one, so
    that they do not replace them.
    """

    def __init__(self) -> None:
        self._first_step = self._first_index = 0
        self._last_step = -1
        self._open: Round | None = None
        # Weak: a training run that ends in an exception must not keep its model alive.
        self._model: weakref.ref[Any] | None = None
        # The thread that trains, and the model it began with.
        self._trainer: tuple[int, weakref.ref[Any]] | None = None

    @property
    def in_training(self) -> bool:
        """Whether the calling thread is the one whose training run is counted."""
        return self._trainer is not None and self._trainer[0] == threading.get_ident()

    def begin_training(self, model: Any) -> bool:
        """Begin a training run; return False when another thread is in the middle of one."""
        if self._trainer is not None:
            thread, trained = self._trainer
            # The model of a training run that ended in an exception is gone.
            if thread != threading.get_ident() and trained() is not None:
                return False
        self._trainer = threading.get_ident(), weakref.ref(model)
        self._open = None
        booster = booster_of(model)
        self._first_index = 0 if booster is None else int(booster.num_boosted_rounds())
        self._first_step = self._first_index
        if self._first_step <= self._last_step:
            self._first_step = self._last_step + 1
            logger.info(
                "the rounds of this training run are the steps from %d on, after those of the "
                "previous one", self._first_step,
            )  # fmt: skip
        return True

    def end_training(self) -> Round | None:
        """End the training run.

        Returns:
            The round that was completed without a call of `end_round`: a callback that ends
            training may keep others from being called.
        """
        last = self.end_round()
        self.reset()
        return last if last is not None and last.took_place else None

    def reset(self) -> None:
        """Drop the training run."""
        self._open = self._trainer = self._model = None

    def begin_round(self, model: Any, epoch: int, evals_log: Any) -> int:
        """Begin a round, which a callback may still cancel; return its step."""
        self._open = Round(self._first_index + epoch, evals_log)
        self._model = weakref.ref(model)
        return self._first_step + epoch

    def end_round(self) -> Round | None:
        """Return the round that was begun, with its model; None if there is none."""
        ended, self._open = self._open, None
        model = None if self._model is None else self._model()
        if ended is None or model is None:
            return None
        ended.booster = booster_of(model)
        return ended

    def count(self, ended: Round) -> None:
        """Record that a round was completed."""
        self._last_step = self._first_step + ended.index - self._first_index


def booster_of(model: Any) -> Any:
    """Return the model that callbacks receive; None in cross-validation, which trains several."""
    return None if hasattr(model, "cvfolds") else model
