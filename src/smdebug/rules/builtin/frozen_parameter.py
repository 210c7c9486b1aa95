"""Parameters that should train and do not."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.rules.builtin.weight_update_ratio import FROZEN, TrainingSteps
from smdebug.rules.rule import Rule
from smdebug.trials.frame import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from smdebug.rules.tensor_choice import TensorChoice
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Frame
    from smdebug.trials.index_rows import Bools, Floats, Ints
    from smdebug.trials.trial import Trial

# By the mean a change is seen best: most means are near 0, where numbers are finest. Without it an
# update of a few rows may be lost in rounding.
_VALUES = ("mean", "min", "max", "l2")
_GRADIENTS = ("abs_max", "l2", "abs_mean")
# How many times as long as usual to wait where a pause may be meant: an expert of a mixture that
# is seldom asked, or an optimizer that steps once in many batches.
_LONG = 25
# A gradient this much smaller than the largest may be lost in rounding: the bias before a
# normalisation, which cancels, gets such a one.
_FELT = 1e-5

_KERAS_WEIGHT = re.compile(r"(?:^|/)weights/(.+?)(?::\d+)?$")


def gradient_names(parameter: str) -> tuple[str, ...]:
    """The names that the gradient of a parameter may have, by framework.

    Example:
        >>> gradient_names("Net_fc.weight")
        ('gradient/Net_fc.weight',)
        >>> gradient_names("dense/weights/dense/kernel:0")[1]
        'gradients/dense/kernelGrad'
    """
    names = [f"gradient/{parameter}"]
    keras = _KERAS_WEIGHT.search(parameter)
    if keras:
        names.append(f"gradients/{keras[1]}Grad")
    return tuple(names)


class FrozenParameter(Rule):
    """Fires when a parameter that should train gets no gradient, or does not move in spite of one.

    It looks at weights and biases at steps of mode TRAIN, and, until the first of them, at those
    without a mode. A parameter is frozen when

    - at `patience` saved steps in a row other parameters have gradients and its own is absent or
      exactly zero. A parameter that had a gradient before is given 25 times as long: an expert of a
      mixture or one of several heads may not be in use. A bias whose gradient is zero is left
      alone: before a normalisation or a softmax it cancels, and that is no fault. Absent counts
      only where at least half as many gradients were saved as ever, and not where gradients were
      saved by name.
    - `patience` times in a row its mean, min, max and l2, as far as they were saved, are exactly
      what they were when it was last saved, although it had a gradient then and other parameters
      have moved. The mean must be among them. Gradients 100,000 times smaller than the largest do
      not count here.

    When no parameter at all has moved, the optimizer has not stepped: it may accumulate gradients,
    or the learning rate begins at 0. After 25 * `patience` times in a row that is told once, of all
    parameters.

    Parameters in the collection `frozen_parameters`, in which a hook lists those that are frozen on
    purpose, are left out.

    Args:
        base_trial: the trial to look at.
        patience: for how many saved steps a parameter must be frozen.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["FrozenParameter:patience=5"])  # doctest: +SKIP
    """

    reads = tuple(dict.fromkeys((*_VALUES, *_GRADIENTS)))

    def __init__(self, base_trial: Trial | None, patience: Any = 3, action_str: Any = "") -> None:
        super().__init__(base_trial, action_str)
        self.patience = validation.whole_number("patience", patience, minimum=1)
        self.parameters = self.choose([CollectionKeys.WEIGHTS, CollectionKeys.BIASES])
        self.gradients = self.choose([CollectionKeys.GRADIENTS])
        self.biases = self.choose([CollectionKeys.BIASES], required=False)
        self._training = TrainingSteps()
        self._workers: dict[str, _Parameters] = {}

    def needs(self) -> tuple[TensorRequirement, ...]:
        """Four numbers of weights and biases, and the size of gradients."""
        return (
            TensorRequirement(CollectionKeys.WEIGHTS, _VALUES),
            TensorRequirement(CollectionKeys.BIASES, _VALUES),
            TensorRequirement(CollectionKeys.GRADIENTS, ("abs_max",)),
        )

    def start_over(self) -> None:
        """Forgets the parameters."""
        super().start_over()
        self._training = TrainingSteps()
        self._workers.clear()

    def check(self, frame: Frame) -> Iterator[Finding]:
        """Follows every parameter from step to step."""
        steps = sorted(self._training.of(frame))
        frozen = frame.trial.collections().get(FROZEN)
        cells = frame.where_saved(
            lambda name: self.parameters(name) and not (frozen is not None and frozen.matches(name))
        )
        laid = [self.read_cells(cells, name, self.parameters) for name in _VALUES]
        values = np.stack([each for each, _ in laid], axis=-1)
        known = np.stack([each for _, each in laid], axis=-1)
        gradients = frame.where_saved(self.gradients)
        sizes, sized = self._sizes(frame, gradients)
        expects = _expected(frame)
        for worker in sorted({column.worker for column in cells.columns} | set(self._workers)):
            state = self._workers.setdefault(worker, _Parameters(self.patience))
            state.add([each for each in cells.columns if each.worker == worker], self.biases)
            own = _Grid(cells, steps, [(column,) for column in state.columns])
            paired = _Grid(gradients, steps, [_gradients_of(column) for column in state.columns])
            numbers, given, saved = own.lay(values), own.lay(known), own.lay(cells.present)
            slopes, measured = paired.lay(sizes), paired.lay(sized)
            absent = paired.lay(gradients.present) != 1
            absent &= np.array([expects(column.tensor) for column in state.columns], bool)
            for row, step in enumerate(steps):
                state.take_values(numbers[row], given[row] == 1, saved[row] == 1)
                state.take_gradients(slopes[row], measured[row] == 1, absent[row])
                yield from self._told(frame, step, worker, state)

    def _sizes(self, frame: Frame, gradients: Frame) -> tuple[Floats, Bools]:
        """How large each gradient is, by the first of some reductions, and where one was saved."""
        sizes, found = self.read_cells(gradients, _GRADIENTS[0], self.gradients)
        for name in _GRADIENTS[1:]:
            more, known = self.read_cells(gradients, name, self.gradients, ~found)
            sizes, found = np.where(known, more, sizes), found | known
        return sizes, found

    def _told(self, frame: Frame, step: int, worker: str, state: _Parameters) -> Iterator[Finding]:
        for about, holds, counts in state.verdicts():
            for place in np.flatnonzero(holds | state.holding[about]).tolist():
                column, count = state.columns[place], float(counts[place])
                if self.started((about, column), bool(holds[place]), step):
                    message = f"{column.tensor} {_SAID[about].format(count)}"
                    yield self.finding(
                        frame, step, message, column, count, float(self.patience), about
                    )  # fmt: skip
            state.holding[about] = holds
        limit = _LONG * self.patience
        if self.started(("none moved", worker), state.unmoved_steps >= limit, step):
            count = state.unmoved_steps
            message = (
                f"no parameter of {worker} has moved at {count} saved steps in a row, in "
                "spite of its gradients; does the optimizer step, and is the learning rate above 0?"
            )
            found = self.finding(frame, step, message, None, float(count), float(limit))
            yield dataclasses.replace(found, worker=worker)


_SAID = {
    "silent": "has had no gradient at {:.0f} saved steps in a row at which other parameters had "
    "one; is it used, and not detached from the loss?",
    "still": "has not moved at {:.0f} saved steps in a row at which other parameters did, in spite "
    "of its gradient; does the optimizer have it?",
}


class _Parameters:
    """The parameters of one worker.

    Attributes:
        columns: which.
        unmoved_steps: how often in a row none of them has moved.
        holding: which of them were found to be frozen when last looked at.
    """

    def __init__(self, patience: int) -> None:
        self.columns: list[Column] = []
        self.unmoved_steps = 0
        self.holding = {"silent": np.zeros(0, bool), "still": np.zeros(0, bool)}
        self._patience = patience
        # The most gradients that were there at a step.
        self._most = 0
        self._known = self._bias = self._used = self._felt = np.zeros(0, bool)
        self._silent = self._still = np.zeros(0, np.int64)
        self._last = np.zeros((0, len(_VALUES)))

    def add(self, columns: list[Column], is_bias: TensorChoice) -> None:
        """Adds those that are new; what is known of a parameter begins when it is first saved."""
        known = set(self.columns)
        fresh = [column for column in columns if column not in known]
        self.columns += fresh
        self._bias = np.append(self._bias, [is_bias(column.tensor) for column in fresh]).astype(
            bool
        )
        none, zero = np.zeros(len(fresh), bool), np.zeros(len(fresh), np.int64)
        self._known, self._used = np.append(self._known, none), np.append(self._used, none)
        self._felt = np.append(self._felt, none)
        self._silent, self._still = np.append(self._silent, zero), np.append(self._still, zero)
        self._last = np.concatenate([self._last, np.full((len(fresh), len(_VALUES)), np.nan)])
        self.holding = {about: np.append(each, none) for about, each in self.holding.items()}

    def take_values(self, values: Floats, known: Bools, saved: Bools) -> None:
        """Takes what the parameters are at a step, before its gradients change them.

        Args:
            values: their reductions.
            known: which of these are there.
            saved: which parameters were saved at all.
        """
        self._known |= saved
        now = np.where(known, values, np.nan)
        both = ~np.isnan(now) & ~np.isnan(self._last)
        # Without the mean a change may not be seen.
        comparable = both[:, 0]
        moved = comparable & ((now != self._last) & both).any(axis=1)
        kept = comparable & ~moved & self._felt
        if moved.any():
            self.unmoved_steps = 0
            self._still += kept
        elif kept.any():
            self.unmoved_steps += 1
        self._still[moved] = 0
        # What is not known now stays what it was.
        taken = known[:, 0]
        self._last[taken] = now[taken]
        self._felt &= ~taken

    def take_gradients(self, sizes: Floats, known: Bools, absent: Bools) -> None:
        """Takes the gradients of a step.

        Args:
            sizes: how large they are.
            known: of which of them that is known.
            absent: which parameters had none, though it would have been saved.
        """
        # Of a parameter that is saved later on, the gradient does not count yet.
        known = known & self._known
        # NaN is a gradient too, be it a bad one.
        some, count = known & (sizes != 0), int(known.sum())
        if some.any():
            silent = known & ~some & ~self._bias
            if 2 * count >= self._most:
                silent |= self._known & absent
            self._silent = np.where(silent, self._silent + 1, np.where(known, 0, self._silent))
            self._used |= some
            self._felt |= some & (
                sizes > _FELT * np.max(np.where(known & np.isfinite(sizes), sizes, 0.0))
            )
        self._most = max(self._most, count)

    def verdicts(self) -> list[tuple[str, Bools, Ints]]:
        """Which parameters are frozen and since when, by what is wrong."""
        limits = np.where(self._used, _LONG * self._patience, self._patience)
        return [
            ("silent", self._silent >= limits, self._silent),
            ("still", self._still >= self._patience, self._still),
        ]


class _Grid:
    """Takes some steps and columns out of tables that are laid out alike.

    Args:
        table: how they are laid out.
        steps: the steps to take; a table need not have them.
        wanted: for each column to take, the columns it may be; the first that is there counts.
    """

    def __init__(self, table: Frame, steps: list[int], wanted: list[tuple[Column, ...]]) -> None:
        rows = {step: row for row, step in enumerate(table.steps.tolist())}
        places = {column: place for place, column in enumerate(table.columns)}
        self._rows = np.array([rows.get(step, -1) for step in steps], np.int64)
        found = [next((places[each] for each in names if each in places), -1) for names in wanted]
        self._places = np.array(found, np.int64)

    def lay(self, values: Floats | Bools) -> Floats:
        """The numbers of a table at the steps and columns; NaN where it has none."""
        laid = np.full((len(self._rows), len(self._places), *values.shape[2:]), np.nan)
        rows, places = np.flatnonzero(self._rows >= 0), np.flatnonzero(self._places >= 0)
        laid[np.ix_(rows, places)] = values[np.ix_(self._rows[rows], self._places[places])]
        return laid


def _gradients_of(column: Column) -> tuple[Column, ...]:
    return tuple(Column(name, column.worker) for name in gradient_names(column.tensor))


def _expected(frame: Frame) -> Callable[[str], bool]:
    """Tells of which parameters the run would have saved a gradient, had there been one."""
    collections = frame.trial.collections()
    gradients = collections.get(CollectionKeys.GRADIENTS)
    by_name = any(
        name.startswith("gradient")
        for collection in collections.values()
        if collection.name not in (CollectionKeys.GRADIENTS, CollectionKeys.ALL)
        for name in collection.tensor_names
    )
    if gradients is None or (by_name and not gradients.tensor_names):
        return lambda parameter: False
    if not gradients.include_regex:
        return lambda parameter: True
    return lambda parameter: any(gradients.matches(name) for name in gradient_names(parameter))
