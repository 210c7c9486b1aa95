"""Histograms as TensorBoard knows them: buckets that grow with the distance from zero."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from smdebug.reductions import Array

_SMALLEST, _GROWTH, _LARGEST = 1e-12, 1.1, 1e20
# Sign, exponent and eight bits of what follows them are left of a float64.
_SHIFT = np.uint64(44)
# From here on a table pays, which takes 0.1 s to make and 2 MB.
_MANY = 5000


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
    places = _places(numbers)
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


def _places(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The bucket of every number: how many edges are not above it."""
    if numbers.size < _MANY:
        return np.searchsorted(_edges(), numbers, side="right")
    # A search takes 55 ns for each number, looking it up in a table 8; one in 35 is searched.
    places: npt.NDArray[np.int64] = _table()[numbers.view(np.uint64) >> _SHIFT].astype(np.int64)
    open_ones = np.flatnonzero(places < 0)
    places[open_ones] = np.searchsorted(_edges(), numbers[open_ones], side="right")
    return places


@lru_cache(maxsize=1)
def _table() -> npt.NDArray[np.int16]:
    """For the leading bits of a number, its bucket; -1 where they do not decide it."""
    keys = np.arange(1 << (64 - int(_SHIFT)), dtype=np.uint64) << _SHIFT
    first = np.searchsorted(_edges(), keys.view(np.float64), side="right")
    # Between a number and another with the same leading bits, buckets go up or down only.
    keys |= (np.uint64(1) << _SHIFT) - np.uint64(1)
    last = np.searchsorted(_edges(), keys.view(np.float64), side="right")
    return np.where(first == last, first, -1).astype(np.int16)


@lru_cache(maxsize=1)
def _edges() -> npt.NDArray[np.float64]:
    """The ends of all buckets: zero, and powers on both sides of it."""
    powers = []
    edge = _SMALLEST
    while edge < _LARGEST:
        powers.append(edge)
        edge *= _GROWTH
    return np.array([*(-each for each in reversed(powers)), 0.0, *powers])
