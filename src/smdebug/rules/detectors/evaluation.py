"""Losses as rules see them: a series for every tensor, worker and mode, and rounds of evaluation.

Within one evaluation the model stays as it is: its batches differ, but not in time. So what a rule
says about EVAL it says about the means of whole evaluations.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.rules.rule import Rule
    from smdebug.rules.tensor_choice import TensorChoice
    from smdebug.trials.frame import Column, Frame
    from smdebug.trials.index_rows import Bools

# Names that say which losses they are whatever the mode of the step, as Keras has them in its logs.
_VALIDATION = re.compile(r"(?:^|(?<=/))val_")
_TRAINING = re.compile(r"(?:^|(?<=/))train_")
# Metrics of XGBoost: the data set, and what was measured on it.
_OF_DATA_SET = re.compile(r"^(?P<data>[^-/]+)-(?P<metric>.+)$", re.DOTALL)
_TRAINING_DATA = frozenset({"train", "training", "dtrain"})


def choose_losses(
    rule: Rule, collection_names: Any, tensor_regex: Any, use_losses_collection: Any
) -> TensorChoice:
    """The choice of a rule about losses: what it is told, and the collection `losses`.

    Raises:
        SMDebugValueError: nothing is chosen.
    """
    names = validation.comma_list("collection_names", collection_names)
    if validation.boolean("use_losses_collection", use_losses_collection):
        names = [*names, *({CollectionKeys.LOSSES} - set(names))]
    choice = rule.choose(names, tensor_regex)
    if not choice:
        raise SMDebugValueError(
            f"{rule.rule_name} must be told collection_names or tensor_regex when "
            "use_losses_collection is false, got neither"
        )
    return choice


def is_validation(tensor: str) -> bool:
    """Whether a tensor holds the loss of an evaluation by its name.

    Example:
        >>> is_validation("val_loss"), is_validation("loss")
        (True, False)
    """
    return _VALIDATION.search(tensor) is not None


def by_mode(frame: Frame, table: Frame) -> dict[ModeKeys, Frame]:
    """The rows of a table for each mode that steps of it have."""
    modes = [frame.mode_at(step)[0] for step in table.steps.tolist()]
    found = {}
    for mode in dict.fromkeys(modes):
        found[mode] = rows_of(table, np.array([each is mode for each in modes], bool))
    return found


def rows_of(table: Frame, rows: Bools) -> Frame:
    """Some of the rows of a table."""
    return table.at(rows)


class Moment(NamedTuple):
    """A step, and what it is called within its mode."""

    step: int
    mode: ModeKeys
    mode_step: int


class Evaluation(NamedTuple):
    """An evaluation, and the training since the one before it.

    Attributes:
        column: the loss, as it is called in the evaluation.
        train: the mean training loss since the evaluation before.
        trained: whether one was saved; otherwise `train` is NaN.
        validation: the mean loss of the evaluation.
        variance: how far the difference of the two means varies with the batches that are in them:
            s^2 (1/n + 1/m) for means of n and m losses, where s^2, the variance of the loss of one
            batch, is half the mean squared difference of training losses that follow each other.
        first: the first step of the evaluation.
        last: the last one.
        known: where it was known that the evaluation is over: the first step after it, or its last
            step when none came.
    """

    column: Column
    train: float
    trained: bool
    validation: float
    variance: float
    first: int
    last: int
    known: Moment


_NEVER = Moment(0, ModeKeys.EVAL, 0)


@dataclasses.dataclass
class _Pending:
    """What has come since the last evaluation that is over."""

    column: Column
    trained: float = 0.0
    train_count: int = 0
    last_trained: float = 0.0
    squares: float = 0.0
    evaluated: float = 0.0
    count: int = 0
    first: int = 0
    at: Moment = _NEVER
    # Whether evaluations come as EVAL steps.
    batches: bool = False

    def train(self, value: float) -> None:
        if self.train_count:
            # A difference that is too large to be squared is not finite.
            self.squares += (value - self.last_trained) * (value - self.last_trained)
        self.trained += value
        self.train_count += 1
        self.last_trained = value

    def close(self, known: Moment) -> Evaluation:
        train = self.trained / self.train_count if self.train_count else float("nan")
        variance = 0.0
        if self.train_count > 1:
            of_one = self.squares / (2 * (self.train_count - 1))
            variance = of_one * (1 / self.train_count + 1 / self.count)
        done = Evaluation(
            self.column,
            train,
            self.train_count > 0,
            self.evaluated / self.count,
            variance,
            self.first,
            self.at.step,
            known,
        )
        self.trained = self.evaluated = self.squares = 0.0
        self.train_count = self.count = 0
        return done


class Evaluations:
    """Cuts losses into rounds.

    An evaluation is a run of EVAL steps between which no step of another mode lies, saved or not:
    the number of the step grows as its number within the mode does. A loss called `val_...` that
    was saved in another mode is an evaluation of its own, unless it also comes in EVAL steps.
    `val_loss`, `train_loss` and `loss` are one loss. PREDICT steps are left out.

    Args:
        data_sets: where there is a loss `train-<metric>`, as XGBoost has it, `<data set>-<metric>`
            of the same step is an evaluation of it: both are of the same model.
    """

    def __init__(self, data_sets: bool = False) -> None:
        self._pending: dict[tuple[str, str], _Pending] = {}
        self._data_sets = data_sets

    def clear(self) -> None:
        """Forgets everything."""
        self._pending.clear()

    def add(self, frame: Frame, table: Frame) -> Iterator[Evaluation]:
        """Takes the losses of a frame, and yields the rounds that are over."""
        keys = [(_plain(column.tensor), column.worker) for column in table.columns]
        pairs = _pairs(table) if self._data_sets else {}
        paired = {*pairs, *pairs.values()}
        for row, step in enumerate(table.steps.tolist()):
            now = Moment(step, *frame.mode_at(step))
            if now.mode is ModeKeys.PREDICT:
                continue
            losses = {
                place: float(table.values[row, place])
                for place in np.flatnonzero(table.present[row]).tolist()
            }
            for place, trained in pairs.items():
                if place in losses and trained in losses:
                    yield _of_data_set(table.columns[place], losses[trained], losses[place], now)
            places = [place for place in losses if place not in paired]
            evaluated = [
                place
                for place in places
                if now.mode is ModeKeys.EVAL or is_validation(table.columns[place].tensor)
            ]
            for place in evaluated:
                column = table.columns[place]
                yield from self._evaluate(self._of(keys[place], column), column, losses[place], now)
            in_training = [place for place in places if place not in evaluated]
            if in_training:
                yield from self._close_all(now)
            for place in in_training:
                self._of(keys[place], table.columns[place]).train(losses[place])

    def end(self) -> Iterator[Evaluation]:
        """Yields the evaluations that were not known to be over; no step will come any more."""
        for pending in self._pending.values():
            if pending.count:
                yield pending.close(pending.at)

    def _of(self, key: tuple[str, str], column: Column) -> _Pending:
        return self._pending.setdefault(key, _Pending(column))

    def _evaluate(
        self, pending: _Pending, column: Column, value: float, now: Moment
    ) -> Iterator[Evaluation]:
        pending.batches = pending.batches or now.mode is ModeKeys.EVAL
        if pending.batches and now.mode is not ModeKeys.EVAL:
            # The log of an evaluation whose batches were seen.
            return
        if pending.count and not _same_evaluation(pending.at, now):
            yield pending.close(now)
        if not pending.count:
            pending.first = now.step
        pending.column, pending.at = column, now
        pending.evaluated += value
        pending.count += 1

    def _close_all(self, now: Moment) -> Iterator[Evaluation]:
        for pending in self._pending.values():
            if pending.count:
                yield pending.close(now)


def _same_evaluation(before: Moment, now: Moment) -> bool:
    if before.mode is not ModeKeys.EVAL or now.mode is not ModeKeys.EVAL:
        return False
    return before.step - before.mode_step == now.step - now.mode_step


def _pairs(table: Frame) -> dict[int, int]:
    """The places of losses of data sets, with those of the same metric of the training data."""
    names = [_OF_DATA_SET.match(column.tensor) for column in table.columns]
    metrics = {
        place: (name["metric"], table.columns[place].worker)
        for place, name in enumerate(names)
        if name is not None
    }
    trained = {
        metric: place
        for place, metric in metrics.items()
        if table.columns[place].tensor.partition("-")[0] in _TRAINING_DATA
    }
    return {
        place: trained[metric]
        for place, metric in metrics.items()
        if metric in trained and place not in trained.values()
    }


def _of_data_set(column: Column, trained: float, evaluated: float, now: Moment) -> Evaluation:
    """The round of a data set: all of it is measured, so that chance has no part in it."""
    return Evaluation(column, trained, True, evaluated, 0.0, now.step, now.step, now)


def _plain(tensor: str) -> str:
    return _TRAINING.sub("", _VALIDATION.sub("", tensor))
