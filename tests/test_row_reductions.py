"""Reductions of many rows at once are those of each row alone, and those of float64 numpy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from smdebug.reductions import REDUCTION_NAMES, compute_reductions, compute_row_reductions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.reductions import Array

SHORT = [np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
LONG = [np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_]
FLOAT32, SUBNORMAL = 2.0**-23, 2.0**-149
# Longer than the pieces in which a row is reduced, which are not whole multiples of it.
CHUNK = 1 << 17
LONG_ROW = CHUNK * 2 + 17


def widened(row: Array) -> Array:
    """The row in float64; converting a signalling NaN is a warning of the processor's."""
    with np.errstate(invalid="ignore"):
        return row.astype(np.float64).reshape(-1)


def truth(row: Array) -> dict[str, float]:
    """All reductions of one row, by numpy, in float64."""
    x = widened(row)
    found: dict[str, Any] = {}
    with np.errstate(all="ignore"):
        for prefix, values in (("", x), ("abs_", np.abs(x))):
            found |= {
                f"{prefix}min": values.min(), f"{prefix}max": values.max(),
                f"{prefix}mean": values.mean(), f"{prefix}std": values.std(),
                f"{prefix}variance": values.var(), f"{prefix}sum": values.sum(),
                f"{prefix}prod": values.prod(), f"{prefix}median": np.median(values),
                f"{prefix}l1": np.abs(values).sum(), f"{prefix}l2": norm(values),
            }  # fmt: skip
    counts = {"nans": np.isnan(x).sum(), "infs": np.isinf(x).sum(), "zeros": (x == 0).sum()}
    return {key: float(value) for key, value in {**found, **counts}.items()}


def norm(x: Array) -> float:
    """The square root of the sum of squares; hypot calls that of inf and NaN infinite."""
    if np.isnan(x).any():
        return math.nan
    return math.hypot(*x) if x.size < 1000 else math.sqrt(np.square(x).sum())


def check(rows: Array, names: Iterable[str] = REDUCTION_NAMES) -> None:
    """Compares the reductions of rows with numpy's, and with those of each row alone."""
    names = tuple(names)
    columns = compute_row_reductions(rows, names)
    assert tuple(columns) == names
    assert all(len(column) == len(rows) for column in columns.values())
    short = rows.dtype.itemsize <= 4 and rows.dtype.kind in "fV"
    precision = 0.6 * FLOAT32 if short else 1e-12
    for place, row in enumerate(rows):
        expected = truth(row)
        alone = compute_reductions(row, names)
        magnitudes = np.abs(widened(row))
        total, largest = float(magnitudes.sum()), float(magnitudes.max())
        for name in names:
            found = float(columns[name][place])
            assert found == pytest.approx(float(alone[name]), rel=1e-15, nan_ok=True), name
            # What cancels is as exact as what was added.
            slack = 1e-14 * total if name in ("sum", "mean") else 0.0
            slack = {"variance": 1e-12 * largest**2, "std": 1e-12 * largest}.get(
                name.removeprefix("abs_"), slack
            )
            # A reduction of short floats is one: the smallest lie this far apart.
            slack = max(slack, SUBNORMAL / 2) if short else slack
            assert found == pytest.approx(
                expected[name], rel=precision, abs=slack if math.isfinite(slack) else 0.0,
                nan_ok=True,
            ), (name, place)  # fmt: skip


@pytest.mark.parametrize("dtype", [*SHORT, *LONG], ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 1), (3, 2), (7, 100), (2, 3000)], ids=str)
def test_all_reductions_of_all_types(shape: tuple[int, int], dtype: Any) -> None:
    values = 4 * np.random.default_rng(shape).standard_normal(shape)
    check(np.clip(values, 0, None).astype(dtype) if dtype in (np.uint8, np.bool_) else
          values.astype(dtype))  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("count", [1, 2])
def test_rows_that_are_longer_than_a_piece(dtype: Any, count: int) -> None:
    random = np.random.default_rng(0)
    rows = random.standard_normal((count, LONG_ROW)).astype(dtype)
    check(rows)
    # The first and the last element of all pieces count.
    for place in (0, CHUNK - 1, CHUNK, LONG_ROW - 1):
        marked = np.zeros((count, LONG_ROW), dtype)
        marked[-1, place] = 3
        found = compute_row_reductions(marked, ("max", "sum", "l2", "abs_max", "zeros", "abs_min"))
        values = [float(found[name][-1]) for name in found]
        assert values == [3, 3, 3, 3, LONG_ROW - 1, 0]


def test_exactly_one_piece_and_one_more_element() -> None:
    for size in (CHUNK - 1, CHUNK, CHUNK + 1):
        check(np.random.default_rng(size).standard_normal((1, size)).astype(np.float32))


def test_more_rows_than_fit_into_a_piece() -> None:
    check(np.random.default_rng(0).standard_normal((300, 400)).astype(np.float32),
          ("mean", "std", "abs_max", "l2", "median"))  # fmt: skip


@pytest.mark.parametrize("mean", [1.0, -1.0, 1000.0])
@pytest.mark.parametrize("spread", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("size", [8, 768, 70_000])
def test_a_small_spread_around_a_large_mean(mean: float, spread: float, size: int) -> None:
    random = np.random.default_rng(size)
    rows = (mean + spread * random.standard_normal((3, size))).astype(np.float32)
    rows[1] = mean
    names = ("std", "variance", "abs_std", "abs_variance")
    found = compute_row_reductions(rows, names)
    for place, row in enumerate(rows):
        wide = row.astype(np.float64)
        for name in names:
            values = np.abs(wide) if name.startswith("abs_") else wide
            expected = values.std() if name.endswith("std") else values.var()
            assert found[name][place] == pytest.approx(expected, rel=1e-6, abs=0), (name, place)
    assert found["std"][1] == found["variance"][1] == 0


def test_a_spread_of_nothing_is_nothing() -> None:
    rows = np.full((2, 1000), 0.1, np.float32)
    found = compute_row_reductions(rows, ("std", "variance", "abs_std", "abs_variance"))
    assert all(not column.any() for column in found.values())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize(
    "values",
    [
        [1.0, math.nan, 2.0], [math.nan, math.nan], [math.inf, 1.0], [-math.inf, 1.0],
        [math.inf, -math.inf], [math.inf, math.inf], [math.inf, math.nan, 0.0], [0.0, -0.0],
    ],
    ids=str,
)  # fmt: skip
def test_numbers_that_are_not_finite(values: list[float], dtype: Any) -> None:
    rows = np.ones((3, len(values)))
    rows[1] = values
    check(rows.astype(dtype))


@pytest.mark.parametrize("place", [0, 70_000])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_number_of_a_long_row_is_not_finite(place: int, value: float) -> None:
    rows = np.ones((2, LONG_ROW), np.float32)
    rows[0, place] = value
    check(rows)


def test_a_product_with_a_zero_in_it_is_that_of_numpy() -> None:
    rows = np.full((1, LONG_ROW), 2.0, np.float32)
    rows[0, 0] = 0.0
    check(rows, ("prod", "abs_prod"))


@pytest.mark.parametrize("scale", [1e-45, 1e-40, 1e-38, 1e-20, 1e20, 3e38])
def test_the_smallest_and_the_largest_numbers(scale: float) -> None:
    random = np.random.default_rng(0)
    rows = (scale * np.sign(random.standard_normal((2, 50)))).astype(np.float32)
    rows[0, :7] = 0
    check(rows)
    # Small is not zero, large is not infinite.
    found = compute_row_reductions(rows, ("l2", "abs_sum", "variance"))
    assert all(np.isfinite(column).all() and column.all() for column in found.values())


def test_sums_of_float16_beyond_its_range() -> None:
    rows = np.full((2, 5000), 60000, np.float16)
    check(rows)


def test_rows_may_lie_apart_in_memory() -> None:
    matrix = np.random.default_rng(0).standard_normal((6, 10)).astype(np.float32)
    names = ("mean", "l2", "median")
    for rows in (matrix[::2], matrix[:, ::3], matrix.T, matrix[[4, 1]]):
        expected = compute_row_reductions(rows.copy(), names)
        for name, column in compute_row_reductions(rows, names).items():
            np.testing.assert_allclose(column, expected[name], rtol=1e-7)
    read_only = matrix.copy()
    read_only.flags.writeable = False
    check(read_only)


def test_the_rows_are_not_changed() -> None:
    rows = np.random.default_rng(0).standard_normal((3, 70_000)).astype(np.float32)
    before = rows.copy()
    compute_row_reductions(rows, REDUCTION_NAMES)
    np.testing.assert_array_equal(rows, before)


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 4), st.integers(1, 9)),
        elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
    )
)
@settings(max_examples=150, deadline=None)
def test_any_rows(rows: Array) -> None:
    names = tuple(name for name in REDUCTION_NAMES if "std" not in name and "var" not in name)
    check(rows, names)


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 4), st.integers(1, 9)),
        elements=st.floats(-1000, 1000, width=32),
    ),
    st.sets(st.sampled_from(REDUCTION_NAMES), min_size=1),
)
@settings(max_examples=150, deadline=None)
def test_any_choice_of_reductions(rows: Array, names: set[str]) -> None:
    check(rows, sorted(names))


@example(np.array([[0x7F81, 0xFF81]], np.uint16))
@given(hnp.arrays(np.uint16, st.tuples(st.integers(1, 3), st.integers(1, 6))))
@settings(max_examples=100, deadline=None)
def test_any_bits_of_bfloat16(bits: Array) -> None:
    names = ("min", "max", "abs_max", "median", "nans", "infs", "zeros", "l1", "sum")
    check(bits.view(ml_dtypes.bfloat16), names)
