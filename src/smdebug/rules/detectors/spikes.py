"""Numbers that stand far above those before them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.exceptions import SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.rules.rule import Rule
    from smdebug.trials.index_rows import Bools, Floats, Ints

# Makes the median absolute deviation of normal noise its standard deviation.
_DEVIATION = 1.4826
# Below this share of the level at which a series began, nothing that happens matters any more.
_SHARE_OF_START = 0.01
# How many windows are looked at in one go.
_CHUNK = 50_000


@dataclass
class _Series:
    recent: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)


class SpikeLimits:
    """Says for every number of a series how large it may be, going by the numbers before it.

    With the median m of the last `window` numbers, and the median d of how far they are off a
    straight line through them (through the medians of their two halves), the limit is

        m + factor * max(1.4826 d, floor * |m|, 0.01 * s)

    where s is the size at which the series began: the median of its first `min_history` absolute
    values. When all numbers of the window are positive it is, if that is higher, the same taken of
    their logarithms, where noise is a factor and not a summand: with m and d of the logarithms

        exp(m + factor * max(1.4826 d, floor))

    There is no limit before `min_history` numbers have come. Numbers that are not finite are left
    out; their limit is that of the next.

    Args:
        window: how many numbers before it a number is compared with.
        factor: how many deviations above them it may be.
        min_history: how many numbers must be there to compare with.
        floor: the deviation that is always granted, as a share of the median.

    Example:
        >>> limits = SpikeLimits(window=50, factor=8.0, min_history=3, floor=0.05)
        >>> limits.add("loss", np.array([1.0, 1.0, 1.0, 9.0])).round(2)
        array([ inf,  inf,  inf, 1.49])
    """

    @classmethod
    def checked(cls, window: Any, factor: Any, min_history: Any, floor: float) -> SpikeLimits:
        """Makes the limits of what a user gave.

        Raises:
            SMDebugValueError: something of it makes no sense.
        """
        limits = cls(
            validation.whole_number("window", window, minimum=2),
            validation.number("factor", factor, minimum=0),
            validation.whole_number("min_history", min_history, minimum=2),
            floor,
        )
        if limits.min_history > limits.window:
            raise SMDebugValueError(
                f"min_history must be at most window ({limits.window}), got {limits.min_history}"
            )
        return limits

    def __init__(self, window: int, factor: float, min_history: int, floor: float) -> None:
        self.window, self.factor = window, factor
        self.min_history, self.floor = min_history, floor
        self._series: dict[object, _Series] = {}

    def clear(self) -> None:
        """Forgets everything."""
        self._series.clear()

    def begun(self, key: object) -> bool:
        """Whether a finite number of a series has come."""
        return key in self._series and bool(self._series[key].first)

    def add(self, key: object, values: Floats) -> Floats:
        """Takes the next numbers of a series, and returns their limits; infinity for none."""
        series = self._series.setdefault(key, _Series())
        finite = np.isfinite(values)
        numbers = values[finite]
        series.first += numbers[: self.min_history - len(series.first)].tolist()
        start = float(np.median(np.abs(series.first))) if series.first else 0.0
        line = np.concatenate([np.array(series.recent), numbers])
        # The limit of the number behind the last one as well: a number that is not finite has it.
        limits = self._limits(line, len(series.recent), start)
        series.recent = line[-self.window :].tolist()
        # Which finite number each value is, or comes before.
        found: Floats = limits[np.cumsum(finite) - finite]
        return found

    def _limits(self, line: Floats, known: int, start: float) -> Floats:
        """The limits of the numbers of a line from `known` on, and of the one behind its end."""
        limits = np.full(len(line) - known + 1, np.inf)
        # Windows that are not full yet: only at the beginning of a series.
        for end in range(max(known, self.min_history), min(self.window, len(line) + 1)):
            limits[end - known] = self._of_windows(line[None, :end], start)[0]
        begin = max(known, self.window)
        if len(line) >= begin:
            windows = np.lib.stride_tricks.sliding_window_view(
                line[begin - self.window :], self.window
            )
            for place in range(0, len(windows), _CHUNK):
                part = self._of_windows(windows[place : place + _CHUNK], start)
                limits[begin - known + place : begin - known + place + len(part)] = part
        return limits

    @np.errstate(over="ignore")
    def _of_windows(self, windows: Floats, start: float) -> Floats:
        median, deviation = _spread(windows)
        least = np.maximum(self.floor * np.abs(median), _SHARE_OF_START * start)
        limits: Floats = median + self.factor * np.maximum(deviation, least)
        positive = np.flatnonzero((windows > 0).all(axis=1))
        if len(positive):
            median, deviation = _spread(np.log(windows[positive]))
            # Far beyond what a number can be, where the noise is that wild.
            highest = np.minimum(median + self.factor * np.maximum(deviation, self.floor), 700.0)
            limits[positive] = np.maximum(limits[positive], np.exp(highest))
        return limits


def _spread(windows: Floats) -> tuple[Floats, Floats]:
    """The median of each window, and the deviation of its numbers from its trend."""
    length = windows.shape[1]
    half = length // 2
    rise = np.median(windows[:, -half:], axis=1) - np.median(windows[:, :half], axis=1)
    # From the middle of one half to the middle of the other.
    places = (np.arange(length) - (length - 1) / 2) / (length - half)
    level = windows - rise[:, None] * places
    off = np.abs(level - np.median(level, axis=1)[:, None])
    return np.median(windows, axis=1), _DEVIATION * np.median(off, axis=1)


def beginnings(rule: Rule, key: object, steps: Ints, holds: Bools) -> Iterator[int]:
    """The places at which a condition of a rule begins to hold; see `Rule.begins`."""
    for place, (step, held) in enumerate(zip(steps.tolist(), holds.tolist(), strict=True)):
        if rule.started(key, held, step):
            yield place
