"""Parameters that should train and do not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import checks
from smdebug.config.collection import CollectionKeys
from smdebug.config.need import Need
from smdebug.rules.block import Column
from smdebug.rules.builtin.weight_update_ratio import FROZEN, TrainingSteps
from smdebug.rules.column_rule import ColumnRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.rules.block import Bools, Floats, StepBlock, Table
    from smdebug.storage.findings import Finding
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


class FrozenParameter(ColumnRule):
    """Fires when a parameter that should train gets no gradient, or does not move in spite of one.

    It looks at weights and biases at steps of mode TRAIN, and, until the first of them, at those
    without a mode. A parameter is frozen when

    - at `patience` saved steps in a row other parameters have gradients and its own is absent or exactly
      zero. A parameter that had a gradient before is given 25 times as long: an expert of a mixture
      or one of several heads may not be in use. A bias whose gradient is zero is left alone: before
      a normalisation or a softmax it cancels, and that is no fault. Absent counts only where at
      least half as many gradients were saved as ever, and not where gradients were saved by name.
    - `patience` times in a row its mean, min, max and l2, as far as they were saved, are exactly what
      they were when it was last saved, although it had a gradient then and other parameters have
      moved. The mean must be among them. Gradients 100,000 times smaller than the largest do not
      count here.

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
        self.patience = checks.whole_number("patience", patience, minimum=1)
        self.parameters = self.choose([CollectionKeys.WEIGHTS, CollectionKeys.BIASES])
        self.gradients = self.choose([CollectionKeys.GRADIENTS])
        self.biases = self.choose([CollectionKeys.BIASES], required=False)
        self._training = TrainingSteps()
        self._workers: dict[str, _Parameters] = {}

    def needs(self) -> tuple[Need, ...]:
        """Four numbers of weights and biases, and the size of gradients."""
        return (
            Need(CollectionKeys.WEIGHTS, _VALUES),
            Need(CollectionKeys.BIASES, _VALUES),
            Need(CollectionKeys.GRADIENTS, ("abs_max",)),
        )

    def start_over(self) -> None:
        """Forgets the parameters."""
        super().start_over()
        self._training = TrainingSteps()
        self._workers.clear()

    def judge(self, block: StepBlock) -> Iterable[Finding]:
        """Follows every parameter from step to step."""
        steps = self._training.of(block)
        collections = block.trial.collections()
        frozen = collections.get(FROZEN)
        cells = block.cells(
            lambda name: self.parameters(name) and not (frozen is not None and frozen.matches(name))
        )
        values = _Laid(cells, [self.numbers(block, name, cells, self.parameters) for name in _VALUES])
        sizes = block.cells(self.gradients)
        gradients = _Laid(
            sizes, [self.numbers(block, name, sizes, self.gradients) for name in _GRADIENTS]
        )
        absence = _shows_absence(block)
        for worker in sorted({column.worker for column in (*cells.columns, *sizes.columns)}):
            state = self._workers.setdefault(worker, _Parameters(self.patience))
            state.add([c for c in cells.columns if c.worker == worker], self.biases)
            ours = [values.of(state.columns), gradients.first_of(state.columns)]
            for step in sorted(steps):
                yield from self._judge_step(block, step, worker, state, absence, *ours)

    def _judge_step(
        self,
        block: StepBlock,
        step: int,
        worker: str,
        state: _Parameters,
        absence: bool,
        values: _Rows,
        gradients: _Rows,
    ) -> Iterator[Finding]:
        silent = state.take_gradients(*gradients.at(step), values.at(step)[1], absence)
        still = state.take_values(*values.at(step))
        about = (
            ("silent", silent, "gets no gradient", "is it used, and not detached?"),
            ("still", still, "does not move in spite of its gradient", "does the optimizer have it?"),
        )
        for kind, holds, what, question in about:
            for place in np.flatnonzero(holds | state.holding[kind]).tolist():
                column = state.columns[place]
                if self.begins((kind, column), bool(holds[place]), step):
                    count = float(state.count[kind][place])
                    message = (
                        f"{column.tensor} {what}, for {count:.0f} saved steps in a row while other "
                        f"parameters do; {question}"
                    )
                    yield self.finding(block, step, message, column, count, float(self.patience))
            state.holding[kind] = holds
        if self.begins(("all", worker), state.nobody >= _LONG * self.patience, step):
            message = (
                f"no parameter has moved for {state.nobody} saved steps in a row, in spite of "
                "gradients; does the optimizer step, and is the learning rate above 0?"
            )
            column = Column(state.columns[0].tensor, worker)
            found = self.finding(block, step, message, column, float(state.nobody))
            yield dataclasses.replace(found, tensor=None)
