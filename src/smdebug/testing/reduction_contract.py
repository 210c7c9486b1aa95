"""What an adapter's own reductions must be, as a pytest class to subclass.

An adapter may compute reductions on its device. What it computes is compared with the definition,
`smdebug.reductions`: float64 numpy on the flattened tensor. It accumulates in float32 at least.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from smdebug.reductions import REDUCTION_NAMES, compute_reductions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smdebug.reductions import Array

_SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (2, 3), (2, 3, 4), (0,), (2, 0, 3), (70_001,)]
_DTYPES = ["float32", "float64", "float16", "bfloat16"]
_WHOLE = ["int8", "int16", "int32", "int64", "uint8", "bool"]
_COMPLEX = [name for name in REDUCTION_NAMES if name.startswith("abs_") or name in ("l1", "l2")]
_COMPLEX += ["nans", "infs", "zeros"]
_NAN, _INF = math.nan, math.inf
# Of what each is computed from, how much may be lost by accumulating n float32 numbers in a tree.
_FLOAT32 = 2.0**-23
_EXACT = frozenset(
    {"min", "max", "median", "abs_min", "abs_max", "abs_median", "nans", "infs", "zeros"}
)


class ReductionContract:
    """Subclass it and override `reduce`.

    Example:
        >>> class TestMyReductions(ReductionContract):
        ...     def reduce(self, array, names):
        ...         return my_adapter.reductions(my_framework.tensor(array), names)
    """

    def reduce(self, array: Array, names: tuple[str, ...]) -> Mapping[str, float]:
        """Computes reductions of an array's values the adapter's own way."""
        raise NotImplementedError("override `reduce` with the reductions of the adapter")

    # ---- the tests

    @pytest.mark.parametrize("dtype", _DTYPES)
    @pytest.mark.parametrize("shape", _SHAPES, ids=str)
    def test_all_reductions_of_all_shapes(self, shape: tuple[int, ...], dtype: str) -> None:
        random = np.random.default_rng([len(shape), *shape])
        self._compare(random.standard_normal(shape), dtype)

    @pytest.mark.parametrize("dtype", _WHOLE)
    @pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,)], ids=str)
    def test_whole_numbers(self, shape: tuple[int, ...], dtype: str) -> None:
        random = np.random.default_rng([len(shape), *shape])
        smallest = 0 if dtype in ("uint8", "bool") else -9
        self._compare(random.integers(smallest, 9, shape), dtype)

    @pytest.mark.parametrize("dtype", ["complex64", "complex128"])
    @pytest.mark.parametrize("shape", [(), (1,), (2, 3)], ids=str)
    def test_complex_numbers(self, shape: tuple[int, ...], dtype: str) -> None:
        random = np.random.default_rng([len(shape), *shape])
        values = random.standard_normal(shape) + 1j * random.standard_normal(shape)
        self._compare(values, dtype, tuple(_COMPLEX))

    @pytest.mark.parametrize("dtype", _DTYPES)
    @pytest.mark.parametrize(
        "values",
        [
            [1.0, _NAN, 2.0], [_NAN], [_NAN, _NAN], [_INF, 1.0], [-_INF, 1.0, 2.0], [_INF, -_INF],
            [_INF, _NAN, -_INF, 0.0], [0.0, -0.0, 1.0], [0.0, 0.0],
        ],
        ids=str,
    )  # fmt: skip
    def test_numbers_that_are_not_finite(self, values: list[float], dtype: str) -> None:
        self._compare(np.array(values), dtype)

    @pytest.mark.parametrize("dtype", _DTYPES)
    @pytest.mark.parametrize("size", [2, 3, 4, 5, 1000, 1001])
    def test_the_median_is_between_the_two_in_the_middle(self, size: int, dtype: str) -> None:
        values = np.random.default_rng(size).permutation(size) - size // 3
        self._compare(values, dtype, ("median", "abs_median"))

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_sums_of_short_floats_are_not_short_floats(self, dtype: str) -> None:
        # In their own type the sum stops growing long before the end.
        self._compare(np.ones(100_000), dtype)
        # And in float16 these squares and this sum are infinite.
        self._compare(np.full(1000, 300.0), dtype)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_a_small_spread_around_a_large_mean(self, dtype: str) -> None:
        random = np.random.default_rng(0)
        values = 1.0 + 1e-3 * random.standard_normal(5000)
        self._compare(values, dtype)

    @pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e3])
    def test_large_and_small_numbers(self, scale: float) -> None:
        values = scale * np.random.default_rng(0).standard_normal(500)
        names = tuple(name for name in REDUCTION_NAMES if "variance" not in name)
        self._compare(values, "float32", names if scale < 1e-20 else REDUCTION_NAMES)

    @pytest.mark.parametrize("names", [("l2",), ("abs_max", "min"), ("zeros", "mean", "abs_mean")])
    def test_only_what_was_asked_for_in_that_order(self, names: tuple[str, ...]) -> None:
        found = self.reduce(np.array([3.0, -4.0], np.float32), names)
        assert tuple(found) == names

    def _compare(self, values: Any, dtype: str, names: tuple[str, ...] = REDUCTION_NAMES) -> None:
        with np.errstate(over="ignore"):
            array = np.asarray(values).astype(getattr(ml_dtypes, dtype, dtype))
        expected, found = compute_reductions(array, names), self.reduce(array, names)
        assert set(found) == set(names)
        for name in names:
            assert agrees(name, float(found[name]), float(expected[name]), array), (
                name, float(found[name]), float(expected[name]),
            )  # fmt: skip


def agrees(name: str, found: float, expected: float, array: Array) -> bool:
    """Return whether a reduction of an array is as exact as float32 sums make it."""
    if not math.isfinite(expected) or not math.isfinite(found):
        return _same_beyond_range(name, found, expected, array)
    if name in _EXACT and array.dtype.itemsize <= 4 and array.dtype.kind != "c":
        return found == pytest.approx(expected, rel=_FLOAT32)
    plain = name.removeprefix("abs_")
    magnitudes = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    total = float(magnitudes.sum())
    largest = float(magnitudes.max(initial=0.0))
    # A tree of additions, or blocks of them: rounding grows with the logarithm of the size.
    rounding = 4 * _FLOAT32 * (2 + math.log2(max(array.size, 1)))
    if array.dtype.itemsize == 8 and array.dtype.kind != "c":
        rounding = 1e-12
    tolerance = {
        "sum": rounding * total,
        "mean": rounding * total / max(array.size, 1),
        "l1": rounding * total,
        # The mean that is subtracted is rounded as well.
        "std": rounding * largest,
        "variance": rounding * max(largest * math.sqrt(abs(expected)), abs(expected)),
        "prod": rounding * max(array.size, 1) * abs(expected),
    }.get(plain, rounding * abs(expected))
    return abs(found - expected) <= tolerance + (1e-38 if plain == "prod" else 0.0)


def _same_beyond_range(name: str, found: float, expected: float, array: Array) -> bool:
    """Compares numbers of which one is not finite: float32 ends where float64 does not."""
    if math.isnan(expected) or math.isnan(found):
        return math.isnan(expected) and math.isnan(found)
    if array.dtype.itemsize < 8 and name.endswith("prod") and abs(expected) > 1e38:
        return math.isinf(found) and (found > 0) == (expected > 0)
    return found == expected
