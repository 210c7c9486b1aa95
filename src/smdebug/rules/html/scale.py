"""From numbers to places in a drawing, and the round numbers to write beside an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """Numbers from `low` to `high` as places from `start` to `end`.

    Example:
        >>> Scale(0, 10, 100, 200)(5)
        150.0
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a number."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(low: float, high: float, most: int, whole: bool = False) -> list[float]:
    """Round numbers from `low` to `high`, evenly spaced.

    Args:
        low: the smallest.
        high: the largest.
        most: how many there may be, about.
        whole: only whole numbers.

    Example:
        >>> ticks(0, 97, 5)
        [0.0, 20.0, 40.0, 60.0, 80.0]
    """
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in _STEPS if each * power >= rough * (1 - 1e-9))
    if whole:
        step = max(math.ceil(step), 1)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def padded(low: float, high: float, share: float = 0.06) -> tuple[float, float]:
    """A range with room at both ends; one of a single number becomes a range around it.

    Example:
        >>> padded(2.0, 2.0)
        (1.8, 2.2)
    """
    if high > low:
        room = share * (high - low)
        if math.isfinite(room) and room > 1e-9 * max(abs(low), abs(high)):
            return low - room, high + room
    room = 0.1 * max(abs(low), abs(high)) or 1.0
    return low - room, high + room


def short(value: float) -> str:
    """A number with four digits that count.

    Example:
        >>> short(1234567.0), short(0.123456), short(2e-07), short(12.0)
        ('1,234,567', '0.1235', '2e-07', '12')
    """
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e7 or size < 1e-4:
        return f"{value:.4g}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def tick_texts(values: list[float]) -> list[str]:
    """Numbers beside an axis, all with the same digits behind the point.

    Example:
        >>> tick_texts([0.0, 0.25, 0.5])
        ['0', '0.25', '0.5']
    """
    gap = min((b - a for a, b in pairwise(values)), default=0.0)
    largest = max((abs(value) for value in values), default=0.0)
    if largest >= 1e6 or 0 < largest < 1e-3:
        return ["0" if abs(value) < gap / 1e6 else f"{value:.6g}" for value in values]
    digits = 3 if gap <= 0 else max(0, 1 - math.floor(math.log10(gap)))
    texts = [f"{value + 0.0:,.{digits}f}" for value in values]
    return [text.rstrip("0").rstrip(".") if "." in text else text for text in texts]
