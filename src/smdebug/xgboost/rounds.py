"""Which rounds of which training are which steps."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any

from smdebug.xgboost.source import Round

logger = logging.getLogger("smdebug.hook")


class Rounds:
    """The rounds of one training at a time.

    A step is a round of the model. Rounds of another model go on where the last one ended, so that
    nothing is written over.
    """

    def __init__(self) -> None:
        self._first_step = self._first_index = 0
        self._last_step = -1
        self._open: Round | None = None
        self._model: weakref.ref[Any] | None = None
        self._trainer: tuple[int, weakref.ref[Any]] | None = None

    def begin(self, model: Any) -> bool:
        """Begins a training; False when another one is under way in another thread."""
        if not self._takes_over(model):
            return False
        self._open = None
        self._first_index = self._first_step = rounds_of(model)
        if self._first_step <= self._last_step:
            self._first_step = self._last_step + 1
            logger.info(
                "the rounds of this training are the steps from %d on: those before are of an "
                "earlier one", self._first_step,
            )  # fmt: skip
        return True

    def end(self) -> Round | None:
        """Ends the training.

        Returns:
            The round that took place without anybody saying so: a callback that ends training may
            keep others from being asked.
        """
        last = self.end_round()
        self.stop()
        return last if last is not None and last.took_place else None

    def stop(self) -> None:
        """Forgets the training, wherever it is."""
        self._open = self._trainer = self._model = None

    @property
    def under_way(self) -> bool:
        """Whether the training of this thread is the one that was begun."""
        return self._trainer is not None and self._trainer[0] == threading.get_ident()

    def begin_round(self, model: Any, epoch: int, evals_log: Any) -> int:
        """Begins a round, which a callback may still call off; returns the step that it is."""
        self._open = Round(None, self._first_index + epoch, evals_log)
        # Not the model itself: a training that ends in an exception must not keep it alive.
        self._model = weakref.ref(model)
        return self._first_step + epoch

    def end_round(self) -> Round | None:
        """Returns the round that was begun; None if none was."""
        ended, self._open = self._open, None
        model = None if self._model is None else self._model()
        if ended is None or model is None:
            return None
        ended.booster = booster_of(model)
        return ended

    def count(self, ended: Round) -> None:
        """Takes note that a round took place."""
        self._last_step = self._first_step + ended.index - self._first_index

    def _takes_over(self, model: Any) -> bool:
        thread = threading.get_ident()
        if self._trainer is not None:
            busy, trained = self._trainer
            # One that ended in an exception has not said so.
            if busy != thread and trained() is not None:
                return False
        self._trainer = thread, weakref.ref(model)
        return True


def booster_of(model: Any) -> Any:
    """The model of a training; None in cross-validation, where it is several."""
    return None if hasattr(model, "cvfolds") else model


def rounds_of(model: Any) -> int:
    """How many rounds a model has already."""
    booster = booster_of(model)
    return 0 if booster is None else int(booster.num_boosted_rounds())
