"""ReLUs that never let anything through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.rules.detectors.unit_activity import InactiveUnitRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.reductions import Array
    from smdebug.rules.tensor_choice import TensorChoice
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Frame
    from smdebug.trials.index_rows import Bools
    from smdebug.trials.trial import Trial

_COLLECTION = "relu_output"
_REGEX = ".*relu_output"
# Of reductions the number of samples is not known: so many saved steps are put together.
_LEAST_STEPS = 5


class DeadRelu(InactiveUnitRule):
    """Fires when more than `threshold_layer` percent of a layer's ReLUs are hardly ever active.

    A ReLU is active where its output is above 0. It is dead when that is so at less than
    `threshold_inactivity` percent of the positions; see `InactiveUnitRule` for what units and
    positions are, and how many of them are used. NaN counts as active: it is not for this rule.

    Where the outputs themselves were not saved, their number of zeros is used. With z the share of
    zeros, a and l the two thresholds as shares, and d the share of dead units: a unit that is not
    dead has at most a share 1 - a of zeros, so

        z <= d + (1 - d) (1 - a),    that is    d >= 1 - (1 - z) / a

    and the rule fires when the right side is above l: for certain, but not always when it should.
    The zeros of 5 saved steps are put together.

    Args:
        base_trial: the trial to look at.
        tensor_regex: regexes of the outputs, a list or a string with commas; None looks at the
            collection `relu_output` and at names that match `.*relu_output`.
        threshold_inactivity: a unit active less often, in percent, is dead.
        threshold_layer: the largest percentage of dead units that a layer may have.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["DeadRelu:threshold_layer=80"])  # doctest: +SKIP
    """

    reads = ("zeros",)

    def __init__(
        self,
        base_trial: Trial | None,
        tensor_regex: Any = None,
        threshold_inactivity: Any = 1.0,
        threshold_layer: Any = 50.0,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, threshold_inactivity, threshold_layer, action_str)
        given = validation.comma_list("tensor_regex", tensor_regex)
        self._is_default = not given
        self.outputs = (
            self.choose(None, given) if given else self.choose([_COLLECTION], [_REGEX])
        )  # fmt: skip
        # Zeros, elements and saved steps of each column.
        self._zeros: dict[object, tuple[float, int, int]] = {}

    @property
    def units(self) -> TensorChoice:
        """The outputs of ReLUs."""
        return self.outputs

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The outputs of ReLUs, themselves."""
        if not self._is_default:
            return self.outputs.needs(_COLLECTION, raw=True)
        return (
            TensorRequirement(
                _COLLECTION, raw=True, include_regex=(_REGEX,), layers=("relu",), tensor="output"
            ),
        )

    def start_over(self) -> None:
        """Forgets how active the units were."""
        super().start_over()
        self._zeros.clear()

    def active(self, tensor: str, array: Array) -> Bools:
        """Where the outputs are above 0, or NaN."""
        found: Bools = ~(array <= 0)
        return found

    def sentence(self, tensor: str, percent: float) -> str:
        """What to say of a layer with dead units."""
        return (
            f"{percent:.0f} % of the ReLUs of {tensor} are dead, more than "
            f"{self.threshold_layer:g} %: they are active in less than "
            f"{self.threshold_inactivity:g} % of the samples"
        )

    def check(self, frame: Frame) -> Iterator[Finding]:
        """Counts where units are active, and zeros where the outputs were not saved."""
        yield from super().check(frame)
        yield from self._judge_zeros(frame)

    def _judge_zeros(self, frame: Frame) -> Iterator[Finding]:
        cells = frame.where_saved(self.outputs)
        reduced = cells.present & ~cells.has_value
        if not reduced.any() or not self.threshold_inactivity:
            return
        zeros, known = self.read_cells(cells, "zeros", self.outputs, reduced)
        sizes = cells.sizes()
        for row, place in np.argwhere(known & (sizes > 0)).tolist():
            column, step = cells.columns[place], int(cells.steps[row])
            before = self._zeros.pop(column, (0.0, 0, 0))
            share, size = before[0] + float(zeros[row, place]), before[1] + int(sizes[row, place])
            if before[2] + 1 < _LEAST_STEPS:
                self._zeros[column] = (share, size, before[2] + 1)
                continue
            percent = 100.0 * (1 - (1 - share / size) * 100 / self.threshold_inactivity)
            if self.started(("zeros", column), percent > self.threshold_layer, step):
                message = f"At least {self.sentence(column.tensor, percent)}"
                yield self.finding(frame, step, message, column, percent, self.threshold_layer)
