"""What every reduction means: float64 numpy on the flattened tensor.

Population standard deviation and variance, vector norms whatever the rank, numpy's median. An
adapter may compute the same on its device; `ReductionContract` compares it with this module.

A reduction of a tensor of at most 32-bit floats is rounded to float32, the precision it was
computed from; others stay float64. A value beyond float32's range stays float64 as well, so that
a large but finite number is never reported as infinite, nor a tiny one as zero. The empty tensor
has sum 0, prod 1, norms 0 and counts 0; its other reductions are NaN.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from smdebug.exceptions import SMDebugTypeError, SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Array = npt.NDArray[Any]

REDUCTIONS_PREFIX = "smdebug/reductions/"

ALLOWED_REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "prod", "median")
ALLOWED_NORMS = ("l1", "l2")
# Counts of elements; an `abs_` form would say the same.
COUNTS = ("nans", "infs", "zeros")

# Every reduction a run can hold, by the name it has in the index.
REDUCTION_NAMES = (
    *ALLOWED_REDUCTIONS,
    *ALLOWED_NORMS,
    *(f"abs_{name}" for name in (*ALLOWED_REDUCTIONS, *ALLOWED_NORMS)),
    *COUNTS,
)


def _l2(x: Array) -> Any:
    # Scaled, so that squares of large or tiny numbers neither overflow nor vanish.
    magnitudes = np.abs(x)
    scale = np.max(magnitudes, initial=0.0)
    if scale == 0.0 or not np.isfinite(scale):
        return scale
    return scale * np.sqrt(np.sum(np.square(magnitudes / scale)))


def _or_nan(reduce: Callable[[Array], Any]) -> Callable[[Array], Any]:
    return lambda x: reduce(x) if x.size else np.nan


_FUNCTIONS: dict[str, Callable[[Array], Any]] = {
    "min": _or_nan(np.min),
    "max": _or_nan(np.max),
    "mean": _or_nan(np.mean),
    "std": _or_nan(np.std),
    "variance": _or_nan(np.var),
    "sum": np.sum,
    "prod": np.prod,
    "median": _or_nan(np.median),
    "l1": lambda x: np.sum(np.abs(x)),
    "l2": _l2,
    "nans": lambda x: np.count_nonzero(np.isnan(x)),
    "infs": lambda x: np.count_nonzero(np.isinf(x)),
    "zeros": lambda x: x.size - np.count_nonzero(x),
}


def canonical_reduction(name: str, abs: bool = False) -> str:
    """Returns the name of a reduction as the index spells it.

    Example:
        >>> canonical_reduction("l1_norm"), canonical_reduction("max", abs=True)
        ('l1', 'abs_max')
    """
    plain = name.removesuffix("_norm")
    if plain != name and plain.removeprefix("abs_") not in ALLOWED_NORMS:
        plain = name
    plain = f"abs_{plain}" if abs and not plain.startswith("abs_") else plain
    if plain.removeprefix("abs_") in COUNTS:
        plain = plain.removeprefix("abs_")
    if plain not in REDUCTION_NAMES:
        raise SMDebugValueError(
            f"unknown reduction {name!r}; expected one of {', '.join(REDUCTION_NAMES)}"
        )
    return plain


def compute_reduction(tensor: Array, name: str, abs: bool = False) -> np.float64:
    """Computes one reduction of a tensor.

    Args:
        tensor: any numeric array; bfloat16 and float8 included.
        name: a reduction name, with or without `abs_` and `_norm`.
        abs: reduce the absolute values.

    Raises:
        SMDebugValueError: the reduction is unknown.
        SMDebugTypeError: the tensor holds strings, or is complex and the reduction is not real.

    Example:
        >>> compute_reduction(np.array([[3.0, -4.0]]), "l2")
        np.float64(5.0)
    """
    return compute_reductions(tensor, [canonical_reduction(name, abs)])[
        canonical_reduction(name, abs)
    ]


def compute_reductions(tensor: Array, names: Iterable[str]) -> dict[str, np.float64]:
    """Computes several reductions of a tensor, named as the index spells them."""
    names = tuple(names)
    if is_short_float(tensor.dtype) and tensor.size:
        columns = compute_row_reductions(np.asarray(tensor).reshape(1, -1), names)
        return {name: column[0] for name, column in columns.items()}
    values = _as_float64(tensor)
    magnitudes = None
    result: dict[str, np.float64] = {}
    # Overflow and NaN are findings to store, not warnings to print.
    with np.errstate(all="ignore"):
        for name in names:
            plain = name.removeprefix("abs_")
            if plain == name:
                operand = values
            else:
                magnitudes = np.abs(values) if magnitudes is None else magnitudes
                operand = magnitudes
            if np.iscomplexobj(operand) and plain not in ("l1", "l2", *COUNTS):
                raise SMDebugTypeError(
                    f"reduction {name!r} of a complex tensor is not a real number; "
                    f"use abs_{plain}, a norm or a count"
                )
            result[name] = _rounded(_FUNCTIONS[plain](operand), tensor.dtype)
    return result


def compute_row_reductions(rows: Array, names: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
    """Computes reductions of every row of a matrix, as `compute_reductions` does of each alone.

    A tensor of short floats is reduced in chunks that stay in the processor's cache. Squares and
    sums of short floats neither overflow nor vanish in float64, so one pass gives all moments.

    Args:
        rows: a tensor in each row, at least one element in each.
        names: the reductions, named as the index spells them.

    Returns:
        For each name an array of float64, one number for each row.

    Example:
        >>> compute_row_reductions(np.array([[3.0, -4.0], [0.0, 1.0]], np.float32), ["l2"])
        {'l2': array([5., 1.])}
    """
    names = tuple(names)
    if not is_short_float(rows.dtype):
        each = [compute_reductions(row, names) for row in rows]
        return {name: np.array([found[name] for found in each], np.float64) for name in names}
    with np.errstate(all="ignore"):
        found = _ShortRows(rows, frozenset(names))
        return {name: _rounded_column(found.get(name)) for name in names}


class _ShortRows:
    """Sums, squares and extremes of rows of short floats, gathered chunk by chunk."""

    def __init__(self, rows: Array, names: frozenset[str]) -> None:
        self._rows = rows
        self._size = rows.shape[1]
        plain = {name.removeprefix("abs_") for name in names}
        count = len(rows)
        self._sum, self._squares, self._l1 = np.zeros((3, count))
        self._extremes = {
            name: np.full(count, np.inf if name.endswith("min") else -np.inf)
            for name in names & {"min", "max", "abs_min", "abs_max"}
        }
        self._counts = {name: np.zeros(count) for name in names & set(COUNTS)}
        self._prods = {name: np.ones(count) for name in names & {"prod", "abs_prod"}}
        self._wants_sums = bool(plain & {"sum", "mean", "std", "variance", "l2"})
        # All that needs the sum of the absolute values.
        self._wants_l1 = bool(names & _FROM_L1)
        for place, chunk in _chunks(rows):
            self._add(place, chunk)

    def _add(self, place: slice, chunk: Array) -> None:
        for name, extreme in self._extremes.items():
            best = np.minimum if name.endswith("min") else np.maximum
            values = np.abs(chunk) if name.startswith("abs_") else chunk
            extreme[place] = best(extreme[place], best.reduce(values, axis=1))
        # Nearly always there is nothing to count, which the extremes say eight times as fast.
        finite = bool(self._counts) and bool(np.isfinite([chunk.min(), chunk.max()]).all())
        for name, counts in self._counts.items():
            if name == "zeros" or not finite:
                counts[place] += np.count_nonzero(_COUNTED[name](chunk), axis=1)
        if not (self._wants_sums or self._wants_l1 or self._prods):
            return
        wide = _scratch(chunk.shape)
        np.copyto(wide, chunk)
        for name, prod in self._prods.items():
            factors = np.abs(wide) if name == "abs_prod" else wide.copy()
            # In the order of the elements: a zero before an overflow is a zero.
            factors[:, 0] *= prod[place]
            prod[place] = factors.prod(axis=1)
        if self._wants_l1:
            self._l1[place] += np.abs(wide).sum(axis=1)
        if self._wants_sums:
            self._sum[place] += wide.sum(axis=1)
            self._squares[place] += np.square(wide, out=wide).sum(axis=1)

    def get(self, name: str) -> Array:
        plain, absolute = name.removeprefix("abs_"), name.startswith("abs_")
        for found in (self._extremes, self._counts, self._prods):
            if name in found:
                return found[name]
        if plain == "l2":
            return np.sqrt(self._squares)
        total = self._l1 if absolute or plain == "l1" else self._sum
        if plain in ("sum", "l1"):
            return total
        if plain == "mean":
            mean: Array = total / self._size
            return mean
        if plain in ("variance", "std"):
            variance = self._variance(total / self._size, absolute)
            return np.sqrt(variance) if plain == "std" else variance
        rows = np.abs(self._rows) if absolute else self._rows
        return np.array([np.median(row.astype(np.float64)) for row in rows])

    def _variance(self, mean: Array, absolute: bool) -> Array:
        variance: Array = self._squares / self._size - np.square(mean)
        # Where the mean is all there is to see, the difference has lost its digits.
        for row in np.flatnonzero(variance < 1e-6 * np.square(mean)):
            parts = (
                np.square((np.abs(chunk) if absolute else chunk).astype(np.float64) - mean[row])
                for _, chunk in _chunks(self._rows[row : row + 1])
            )
            variance[row] = sum(part.sum() for part in parts) / self._size
        return variance


_FROM_L1 = frozenset({"l1", "abs_l1", "abs_sum", "abs_mean", "abs_std", "abs_variance"})
_COUNTED: dict[str, Callable[[Array], Array]] = {
    "nans": np.isnan,
    "infs": np.isinf,
    "zeros": lambda x: x == 0,
}
# 1 MiB as float64: about the second cache of today's processors.
_CHUNK = 1 << 17
_memory = threading.local()


def _scratch(shape: tuple[int, ...]) -> Array:
    """Float64 memory of this thread: taking it anew for every chunk would cost a third more."""
    if not hasattr(_memory, "array"):
        _memory.array = np.empty(_CHUNK)
    array: Array = _memory.array[: shape[0] * shape[1]].reshape(shape)
    return array


def _chunks(rows: Array) -> Iterator[tuple[slice, Array]]:
    """Cuts a matrix into float32 pieces of whole rows, or, where a row is too long, of one row."""
    count, size = rows.shape
    at_once = max(_CHUNK // size, 1)
    for start in range(0, count, at_once):
        place = slice(start, start + at_once)
        for first in range(0, size, _CHUNK):
            yield place, rows[place, first : first + _CHUNK].astype(np.float32, copy=False)


def _rounded_column(wide: Array) -> npt.NDArray[Any]:
    short = wide.astype(np.float32).astype(np.float64)
    # What float32 cannot hold is a large number, not an infinite one, and a small one, not zero.
    lost = (np.isinf(short) & np.isfinite(wide)) | ((short == 0) != (wide == 0))
    return np.where(lost, wide, short)


def _as_float64(tensor: Array) -> Array:
    if tensor.dtype.kind in "USO":
        raise SMDebugTypeError(f"a tensor of {tensor.dtype} has no reductions")
    wide = np.complex128 if tensor.dtype.kind == "c" else np.float64
    return np.asarray(tensor).reshape(-1).astype(wide, copy=False)


def _rounded(value: Any, dtype: np.dtype[Any]) -> np.float64:
    wide: np.float64 = np.float64(value)
    if not is_short_float(dtype):
        return wide
    short: np.float64 = np.float64(np.float32(wide))
    lost = np.isinf(short) if np.isfinite(wide) else False
    return wide if lost or (short == 0) != (wide == 0) else short


def is_short_float(dtype: np.dtype[Any]) -> bool:
    """Tells whether a dtype is a float of at most 32 bits, ml_dtypes' ones included."""
    if dtype.kind == "f":
        return dtype.itemsize <= 4
    return dtype.kind == "V" and dtype.name in _ML_FLOATS


_ML_FLOATS = frozenset(
    np.dtype(kind).name
    for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
)


def get_reduction_tensor_name(
    tensorname: str, reduction_name: str, abs: bool, remove_colon_index: bool = True
) -> str:
    """Returns the name under which format v1 stores a reduction.

    Example:
        >>> get_reduction_tensor_name("fc.weight", "l2", abs=True)
        'smdebug/reductions/abs_l2/fc.weight'
    """
    import re

    if remove_colon_index:
        tensorname = re.sub(r":\d+", "", tensorname)
    prefix = "abs_" if abs else ""
    return f"{REDUCTIONS_PREFIX}{prefix}{reduction_name.removesuffix('_norm')}/{tensorname}"


def reverse_reduction_tensor_name(reduction_tensor_name: str) -> tuple[str, str, bool]:
    """Takes a stored reduction name apart: (tensor, reduction, abs).

    Example:
        >>> reverse_reduction_tensor_name("smdebug/reductions/abs_l2/fc.weight")
        ('fc.weight', 'l2', True)
    """
    if not reduction_tensor_name.startswith(REDUCTIONS_PREFIX):
        raise SMDebugValueError(
            f"expected a name that starts with {REDUCTIONS_PREFIX}, got {reduction_tensor_name!r}"
        )
    reduction, _, tensor = reduction_tensor_name[len(REDUCTIONS_PREFIX) :].partition("/")
    return tensor, reduction.removeprefix("abs_"), reduction.startswith("abs_")


def get_numpy_reduction(reduction_name: str, numpy_data: Array, abs: bool = False) -> np.float64:
    """Computes a reduction, with the argument order of smdebug 1.0."""
    return compute_reduction(numpy_data, reduction_name, abs)
