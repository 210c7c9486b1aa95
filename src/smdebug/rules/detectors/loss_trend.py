"""How a loss has gone so far: where it began, how far it came down, whether it came up again."""

from __future__ import annotations

import math
from array import array
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from smdebug.trials.index_rows import Floats

# Every so many values a course is looked at, and the newest level is taken of so many.
WINDOW = 10
# Beginnings of so many values are compared with the end, which is of at most so many.
_BEGINNINGS, _LAST = (1, 5, 20, 50), 200
# A loss that came down by this share, and clearly more than its noise, has come down. That is asked
# again and again, so it must be very clear.
_ENOUGH, _VERY_CLEARLY = 0.05, 4.0
# A rise that is clear, and a fall smaller than half a standard error of two medians, which is none.
_CLEARLY, _HARDLY = 3.0, 0.6
# The share of what it came down by that it must have come up again, and how clearly.
_GIVEN_BACK, _CLEARLY_UP = 0.5, 8.0
# With many values, whether a loss is flat is asked less often: each time there are 5 % more.
_MORE = 1.05
# Makes the median size of differences of normal noise the standard deviation of the noise.
_DEVIATION = 1.4826 / math.sqrt(2)


class TrendProblem(NamedTuple):
    """What is wrong with a course.

    Attributes:
        kind: "not finite", "flat" or "risen".
        now: the level of the loss.
        before: the level it is compared with: where it began, or its lowest one.
    """

    kind: str
    now: float
    before: float


class LossTrend:
    """The course of one loss. See `LossNotDecreasing` for what it says and why.

    Args:
        least: the share by which the loss must come down to count as decreasing at all.
        least_steps: how many steps a loss may stay flat.

    Attributes:
        reported: whether what is wrong has been told; it is False again when nothing is wrong.
    """

    def __init__(self, least: float = 0.0, least_steps: int = 0) -> None:
        self._least = least
        self._least_steps = least_steps
        self._count = 0
        self._began = 0
        # All finite values, until the loss has come down.
        self._values = array("d")
        # The newest values, with infinity for those that are not finite.
        self._newest: deque[float] = deque(maxlen=2 * WINDOW)
        self._next_look = 2 * WINDOW
        self._flat: TrendProblem | None = None
        # Where the loss came down from, its noise then, and how low it got.
        self._top: float | None = None
        self._noise = 0.0
        self._lowest = math.inf
        self._verdict: TrendProblem | None = None
        self.reported = False

    def add(self, step: int, value: float) -> TrendProblem | None:
        """Takes the value of a step; returns what is wrong now."""
        if not self._count:
            self._began = step
        self._count += 1
        self._newest.append(value if math.isfinite(value) else math.inf)
        if math.isfinite(value) and self._top is None:
            self._values.append(value)
        if self._count % WINDOW == 0:
            self._verdict = self._look(step)
            self.reported = self.reported and self._verdict is not None
        return self._verdict

    def _look(self, step: int) -> TrendProblem | None:
        now = float(np.median(list(self._newest)[-WINDOW:]))
        if math.isinf(now):
            return TrendProblem("not finite", now, self._values[0] if self._values else now)
        if self._top is None and len(self._values) >= self._next_look:
            self._next_look = int(len(self._values) * _MORE)
            self._flat = self._is_flat(np.array(self._values))
        if self._top is not None:
            return self._risen()
        return self._flat if step - self._began >= self._least_steps else None

    def _is_flat(self, values: Floats) -> TrendProblem | None:
        half = len(values) // 2
        last = values[-min(half, _LAST) :]
        noise, end = _noise(values[-_LAST:]), float(np.median(last))
        for count in (*(each for each in _BEGINNINGS if each < half), min(half, _BEGINNINGS[-1])):
            top = float(np.median(values[:count]))
            error = noise * math.sqrt(1 / count + 1 / len(last))
            least = max(max(_ENOUGH, self._least) * abs(top), _VERY_CLEARLY * error)
            if top > end and top - end >= least:
                # The last beginning it came down from is the least noisy one.
                self._top, self._noise = top, noise
        if self._top is not None:
            self._values = array("d")
            return None
        begin, end = float(np.median(values[:half])), float(np.median(values[half:]))
        error = _noise(values) * math.sqrt(2 / half)
        # In much noise only many values can tell that a loss has not come down.
        visible = _CLEARLY * error <= max(_ENOUGH, self._least) * abs(begin)
        flat = begin - end <= max(self._least * abs(begin), _HARDLY * error)
        rising = end > begin and end - begin >= _CLEARLY * error
        # What was flat is so until it has come down: no new finding for every flicker.
        return TrendProblem("flat", end, begin) if rising or (visible and flat) else self._verdict

    def _risen(self) -> TrendProblem | None:
        level = float(np.median(self._newest))
        self._lowest = min(self._lowest, level)
        assert self._top is not None
        risen = level - self._lowest
        error = self._noise * math.sqrt(2 / len(self._newest))
        least = max(_GIVEN_BACK * (self._top - self._lowest), _CLEARLY_UP * error)
        if self._verdict is not None:
            # What has risen is so until half of that is gone.
            least /= 2
        return TrendProblem("risen", level, self._lowest) if risen > 0 and risen >= least else None


def _noise(values: Floats) -> float:
    """The standard deviation of the noise, whatever the trend."""
    if len(values) < 2:
        return 0.0
    return _DEVIATION * float(np.median(np.abs(np.diff(values))))
