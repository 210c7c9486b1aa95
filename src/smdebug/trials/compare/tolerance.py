"""When two values count as equal, and by how much they are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.storage.format.dtypes import dtype_name, is_string

if TYPE_CHECKING:
    from smdebug.reductions import Array

# How many elements are widened to float64 at a time.
_PIECE = 1 << 20


@dataclass(frozen=True)
class Mismatch:
    """By how much two values differ.

    Attributes:
        first: the element of the first one that differs most; of strings the first that differs;
            a dtype or a shape where that differs.
        second: the same of the second one.
        largest: the largest absolute difference of two elements that are not close; NaN where one
            of them is NaN; None where it is not about numbers.
        at: which element that is.
        differing: how many elements differ.
        elements: how many there are.
    """

    first: Any
    second: Any
    largest: float | None = None
    at: tuple[int, ...] = ()
    differing: int = 1
    elements: int = 1


@dataclass(frozen=True)
class Tolerance:
    """Two numbers are close as `numpy.isclose` has it, in float64; NaN is equal to NaN.

    Attributes:
        rtol: how much they may differ, relative to the second.
        atol: how much they may differ in any case.

    Example:
        >>> Tolerance(1e-5, 1e-8).compare(np.array([1.0, 2.0]), np.array([1.0, 2.5]))[1].at
        (1,)
    """

    rtol: float
    atol: float

    def close(self, first: Array, second: Array) -> Array:
        """Whether numbers are close, one by one."""
        if not self.rtol and not self.atol and {first.dtype.kind, second.dtype.kind} <= set("biu"):
            # Exactly: float64 does not hold every integer.
            return np.asarray(first == second)
        with np.errstate(all="ignore"):
            one, other = _wide(first), _wide(second)
            return np.asarray(np.isclose(one, other, self.rtol, self.atol, equal_nan=True))

    def of_numbers(self, first: float, second: float, shape: tuple[int, ...]) -> Mismatch:
        """The mismatch of two tensors of one element."""
        with np.errstate(all="ignore"):
            largest = float(np.abs(np.float64(first) - np.float64(second)))
        return Mismatch(float(first), float(second), largest, (0,) * len(shape))

    def compare(self, first: Array, second: Array) -> tuple[str, Mismatch] | None:
        """Compares two tensors; None when they are close.

        Returns:
            What differs, "dtype", "shape" or "value", and by how much.
        """
        names = dtype_name(first.dtype), dtype_name(second.dtype)
        if names[0] != names[1]:
            return "dtype", Mismatch(*names)
        if first.shape != second.shape:
            return "shape", Mismatch(list(first.shape), list(second.shape))
        if is_string(first.dtype):
            return self._strings(first, second)
        found = self._numbers(first.reshape(-1), second.reshape(-1), first.shape)
        return None if found is None else ("value", found)

    def _strings(self, first: Array, second: Array) -> tuple[str, Mismatch] | None:
        differs = np.flatnonzero(np.asarray(first != second).reshape(-1))
        if not len(differs):
            return None
        at = tuple(int(place) for place in np.unravel_index(differs[0], first.shape))
        return "value", Mismatch(
            _text(first[at]),
            _text(second[at]),
            None,
            at,
            differing=len(differs),
            elements=first.size,
        )

    def _numbers(self, first: Array, second: Array, shape: tuple[int, ...]) -> Mismatch | None:
        """Compares in pieces: in float64 a tensor may take eight times its memory."""
        differing, worst, place = 0, -1.0, 0
        for begin in range(0, len(first), _PIECE):
            one, other = first[begin : begin + _PIECE], second[begin : begin + _PIECE]
            rows = np.flatnonzero(~self.close(one, other))
            if not len(rows):
                continue
            differing += len(rows)
            with np.errstate(all="ignore"):
                gaps = np.abs(_wide(one[rows]) - _wide(other[rows]))
            # What is not a number differs more than any number does.
            ranked = np.where(np.isnan(gaps), np.inf, gaps)
            most = int(np.argmax(ranked))
            if ranked[most] > worst:
                worst, place = float(ranked[most]), begin + int(rows[most])
        if not differing:
            return None
        with np.errstate(all="ignore"):
            largest = float(np.abs(_wide(first[place]) - _wide(second[place])))
        at = tuple(int(each) for each in np.unravel_index(place, shape)) if shape else ()
        held = _plain(first[place]), _plain(second[place])
        return Mismatch(*held, largest, at, differing, len(first))


def _wide(values: Any) -> Array:
    kind = np.asarray(values).dtype.kind
    return np.asarray(values).astype(np.complex128 if kind == "c" else np.float64)


def _text(value: Any) -> str:
    return str(value, "utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _plain(value: Any) -> Any:
    """A number that other programs understand."""
    if value.dtype.kind == "c":
        return str(value)
    return value.item() if value.dtype.kind in "biu" else float(value)
