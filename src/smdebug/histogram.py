"""Histograms as TensorBoard knows them: buckets that grow with the distance from zero."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from smdebug.reductions import Array

_SMALLEST, _GROWTH, _LARGEST = 1e-12, 1.1, 1e20


class Histogram(NamedTuple):
    """How the numbers of a tensor are spread.

    Attributes:
        min: the smallest.
        max: the largest.
        num: how many there are.
        sum: their sum.
        sum_squares: the sum of their squares.
        limits: where each bucket ends, upwards.
        counts: how many are in each bucket.
    """

    min: float
    max: float
    num: float
    sum: float
    sum_squares: float
    limits: npt.NDArray[np.float64]
    counts: npt.NDArray[np.float64]


def histogram_of(array: Array) -> Histogram | None:
    """Computes the histogram of the finite numbers of an array; None where there are none.

    A bucket holds what is at or above the end of the one before and below its own. Buckets at both
    ends that hold nothing are left out, but for one on the left, from which the first one begins.

    Args:
        array: real numbers of any type and shape.

    Example:
        >>> found = histogram_of(np.array([0.0, 0.5, 0.5, 2.0]))
        >>> found.num, found.sum, found.counts.sum()
        (4.0, 3.0, 4.0)
    """
    if array.dtype.kind in "bcUSO":
        return None
    numbers = array.reshape(-1).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size:
        return None
    edges = _edges()
    places = np.searchsorted(edges, numbers, side="right")
    # What is beyond the last edge belongs to the last bucket.
    counts = np.bincount(np.minimum(places, len(edges) - 1), minlength=len(edges))
    occupied = np.flatnonzero(counts)
    first, last = max(int(occupied[0]) - 1, 0), int(occupied[-1])
    with np.errstate(over="ignore"):
        squares = float(np.square(numbers).sum())
    return Histogram(
        float(numbers.min()),
        float(numbers.max()),
        float(numbers.size),
        float(numbers.sum()),
        squares,
        edges[first : last + 1],
        counts[first : last + 1].astype(np.float64),
    )


@lru_cache(maxsize=1)
def _edges() -> npt.NDArray[np.float64]:
    """The ends of all buckets: zero, and powers on both sides of it."""
    powers = []
    edge = _SMALLEST
    while edge < _LARGEST:
        powers.append(edge)
        edge *= _GROWTH
    return np.array([*(-each for each in reversed(powers)), 0.0, *powers])
