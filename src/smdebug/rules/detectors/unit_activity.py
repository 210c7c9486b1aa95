"""Units of layers, and how often each of them is active."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.config import validation
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.reductions import Array
    from smdebug.rules.tensor_choice import TensorChoice
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Column, Frame
    from smdebug.trials.index_rows import Bools, Ints
    from smdebug.trials.trial import Trial

# What a unit must have been seen at before it is judged.
LEAST_POSITIONS = 100
LEAST_SAMPLES = 16


class Activity(NamedTuple):
    """How often the units of one layer were active.

    Attributes:
        active: for every unit, at how many positions.
        positions: at how many positions each was seen.
        samples: in how many samples.
    """

    active: Ints
    positions: int
    samples: int

    def with_more(self, other: Activity) -> Activity:
        """The activity of two steps together."""
        positions, samples = self.positions + other.positions, self.samples + other.samples
        return Activity(self.active + other.active, positions, samples)

    @property
    def enough(self) -> bool:
        """Whether that says something about the units."""
        return self.positions >= LEAST_POSITIONS and self.samples >= LEAST_SAMPLES


class InactiveUnitRule(Rule):
    """A rule that fires when too many units of a layer are hardly ever active.

    A unit is an element of the layer's tensor without its first axis, the samples. Channels of
    images and features of sequences are units as a whole: of `(N, F)` and `(N, T, F)` the last axis
    counts the units, of `(N, C, H, W)` and more axes the second one (the last one where the tensor
    is called as Keras calls it, `.../outputs` or `.../inputs`). All other axes are positions. A
    tensor of one axis is one sample.

    A layer is judged over the newest saved step and as many before it as make 100 positions in 16
    samples; before there are as many it is not judged. A unit is inactive when it was active at
    less than `threshold_inactivity` percent of the positions. The rule fires when more than
    `threshold_layer` percent of the units are inactive.

    Args:
        base_trial: the trial to look at.
        threshold_inactivity: a unit active less often, in percent, is inactive.
        threshold_layer: the largest percentage of inactive units that a layer may have.
        action_str: what to do when it fires; see `Rule`.
    """

    def __init__(
        self,
        base_trial: Trial | None,
        threshold_inactivity: Any = 1.0,
        threshold_layer: Any = 50.0,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.threshold_inactivity = validation.number(
            "threshold_inactivity", threshold_inactivity, minimum=0, maximum=100
        )
        self.threshold_layer = validation.number(
            "threshold_layer", threshold_layer, minimum=0, maximum=100
        )
        self._activities: dict[Column, list[Activity]] = {}

    @property
    @abstractmethod
    def units(self) -> TensorChoice:
        """The tensors whose elements are the units."""

    @abstractmethod
    def active(self, tensor: str, array: Array) -> Bools:
        """Where the units of a tensor are active."""

    @abstractmethod
    def sentence(self, tensor: str, percent: float) -> str:
        """What to say of a layer with so many percent of inactive units."""

    def start_over(self) -> None:
        """Forgets how active the units were."""
        super().start_over()
        self._activities.clear()

    def check(self, frame: Frame) -> Iterator[Finding]:
        """Counts where units are active."""
        for step, column, array in self.read_raw(frame, self.units):
            if array.dtype.kind in "USOc" or not array.size or not array.ndim:
                continue
            active = _by_unit(self.active(column.tensor, array), column.tensor)
            samples = len(array) if array.ndim > 1 else 1
            newest = Activity(active.sum(axis=0), len(active), samples)
            activity = self._together(column, newest)
            if activity.enough:
                yield from self._judge_layer(frame, step, column, activity)

    def _together(self, column: Column, newest: Activity) -> Activity:
        """What is known of the units from the newest steps, as few as say enough."""
        before = self._activities.get(column, [])
        total, kept = newest, [newest]
        for each in before:
            if total.enough or len(each.active) != len(newest.active):
                break
            total = total.with_more(each)
            kept.append(each)
        # The newest first; the oldest of them will not be needed again when there are enough.
        self._activities[column] = kept[:-1] if total.enough else kept
        return total

    def _judge_layer(
        self, frame: Frame, step: int, column: Column, activity: Activity
    ) -> Iterator[Finding]:
        inactive = activity.active * 100 < self.threshold_inactivity * activity.positions
        percent = 100.0 * float(inactive.mean())
        if self.started(column, percent > self.threshold_layer, step):
            message = self.sentence(column.tensor, percent)
            yield self.finding(frame, step, message, column, percent, self.threshold_layer)


def _by_unit(active: Bools, tensor: str) -> Bools:
    """A row per position and a column per unit."""
    if active.ndim == 1:
        return active[None]
    last = active.ndim <= 3 or tensor.endswith(("/outputs", "/inputs"))
    if not last:
        active = np.moveaxis(active, 1, -1)
    return active.reshape(-1, active.shape[-1])
