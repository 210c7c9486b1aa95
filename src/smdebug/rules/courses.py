"""How a loss has gone so far: where it began, how far it came down, whether it came up again."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from smdebug.rules.block import Floats

# Every so many values a course is looked at, and the newest level is taken of so many.
WINDOW = 10
# The most values that the beginning and the end are taken of.
_FIRST, _LAST = 50, 200
# A loss that came down by this share, and clearly more than its noise, has come down.
ENOUGH = 0.05
_CLEARLY = 4.0
# A fall smaller than half a standard error of two medians is none.
_HARDLY = 0.6
# The share of what it came down by that it must have come up again.
_GIVEN_BACK = 0.5
# Makes the median size of differences of normal noise the standard deviation of the noise.
_DEVIATION = 1.4826 / math.sqrt(2)


class Verdict(NamedTuple):
    """What is wrong with a course.

    Attributes:
        kind: "not finite", "flat" or "risen".
        now: the level of the loss.
        before: the level it is compared with: where it began, or its lowest one.
    """

    kind: str
    now: float
    before: float


class Course:
    """The course of one loss. See `LossNotDecreasing` for what it says and why.

    Args:
        least: the share by which the loss must come down to count as decreasing at all.
        least_steps: how many steps a loss may stay flat.
    """

    def __init__(self, least: float = 0.0, least_steps: int = 0) -> None:
        self._least = least
        self._least_steps = least_steps
        self._count = 0
        self._began = 0
        self._first: list[float] = []
        self._last: deque[float] = deque(maxlen=_LAST)
        # The newest values, with infinity for those that are not finite.
        self._newest: deque[float] = deque(maxlen=2 * WINDOW)
        self._top: float | None = None
        self._lowest = math.inf
        self._verdict: Verdict | None = None
        self.reported = False

    def add(self, step: int, value: float) -> Verdict | None:
        """Takes the value of a step; returns what is wrong now."""
        if not self._count:
            self._began = step
        self._count += 1
        self._newest.append(value if math.isfinite(value) else math.inf)
        if math.isfinite(value):
            self._last.append(value)
            if len(self._first) < _FIRST:
                self._first.append(value)
        if self._count % WINDOW == 0:
            self._verdict = self._look(step)
            self.reported = self.reported and self._verdict is not None
        return self._verdict

    def _look(self, step: int) -> Verdict | None:
        now = float(np.median(list(self._newest)[-WINDOW:]))
        if math.isinf(now):
            return Verdict("not finite", now, self._first[0] if self._first else now)
        if self._count < 2 * WINDOW:
            return None
        half = self._count // 2
        first, last = np.array(self._first[:half]), np.array(self._last)[-half:]
        begin, end, noise = float(np.median(first)), float(np.median(last)), _noise(last)
        self._note_fall(((self._first[0], 1), (begin, len(first))), end, noise, len(last))
        if self._top is not None:
            return self._risen(noise)
        error = noise * math.sqrt(1 / len(first) + 1 / len(last))
        flat = begin - end <= max(self._least * abs(begin), _HARDLY * error)
        long_enough = step - self._began >= self._least_steps
        return Verdict("flat", end, begin) if flat and long_enough else None

    def _note_fall(
        self, levels: tuple[tuple[float, int], ...], end: float, noise: float, count: int
    ) -> None:
        """Notes the level from which the loss has come down, once it has clearly done so."""
        passed = [
            level
            for level, values in levels
            if level - end >= max(
                max(ENOUGH, self._least) * abs(level),
                _CLEARLY * noise * math.sqrt(1 / values + 1 / count),
            )
            and level > end
        ]  # fmt: skip
        if passed:
            self._top = min(passed)

    def _risen(self, noise: float) -> Verdict | None:
        level = float(np.median(self._newest))
        self._lowest = min(self._lowest, level)
        assert self._top is not None
        risen = level - self._lowest
        error = noise * math.sqrt(2 / len(self._newest))
        if risen > 0 and risen >= max(_GIVEN_BACK * (self._top - self._lowest), _CLEARLY * error):
            return Verdict("risen", level, self._lowest)
        return None


def _noise(values: Floats) -> float:
    """The standard deviation of the noise, whatever the trend."""
    if len(values) < 2:
        return 0.0
    return _DEVIATION * float(np.median(np.abs(np.diff(values))))
