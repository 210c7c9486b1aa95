"""Reductions against a computation of their own: plain loops over Python floats."""

from __future__ import annotations

import cmath
import math
import statistics
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from smdebug.exceptions import SMDebugTypeError, SMDebugValueError
from smdebug.reductions import (
    ALLOWED_NORMS,
    ALLOWED_REDUCTIONS,
    COUNTS,
    REDUCTION_NAMES,
    canonical_reduction,
    compute_reduction,
    compute_reductions,
    get_numpy_reduction,
    get_reduction_tensor_name,
    is_short_float,
    reverse_reduction_tensor_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.reductions import Array

SHAPES = [(), (1,), (3,), (2, 3), (2, 3, 4)]
SHORT = [np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
LONG = [np.float64, np.int8, np.int32, np.int64, np.uint8, np.uint64, np.bool_]
NAN, INF = math.nan, math.inf


# ---- the independent computation


def mean(x: list[float]) -> float:
    return math.fsum(x) / len(x)


def variance(x: list[float]) -> float:
    centre = mean(x)
    return math.fsum((item - centre) ** 2 for item in x) / len(x)


def median(x: list[float]) -> float:
    return NAN if any(map(math.isnan, x)) else statistics.median(x)


def extreme(pick: Callable[[list[float]], float]) -> Callable[[list[float]], float]:
    return lambda x: NAN if any(map(math.isnan, x)) else pick(x)


EXPECTED: dict[str, Callable[[list[float]], float]] = {
    "min": extreme(min),
    "max": extreme(max),
    "mean": mean,
    "std": lambda x: math.sqrt(variance(x)),
    "variance": variance,
    "sum": math.fsum,
    "prod": math.prod,
    "median": median,
    "l1": lambda x: math.fsum(map(abs, x)),
    "l2": lambda x: math.hypot(*x),
    "nans": lambda x: sum(map(math.isnan, x)),
    "infs": lambda x: sum(map(math.isinf, x)),
    "zeros": lambda x: sum(item == 0 for item in x),
}


def expected(name: str, items: list[float]) -> float:
    plain = name.removeprefix("abs_")
    return EXPECTED[plain]([abs(item) for item in items] if plain != name else items)


def items_of(array: Array) -> list[float]:
    return [float(item) for item in array.reshape(-1).tolist()]


def close(found: float, wanted: float, tolerance: float) -> bool:
    if math.isnan(wanted) or math.isinf(wanted):
        return math.isnan(found) == math.isnan(wanted) and (found == wanted or math.isnan(wanted))
    return math.isclose(found, wanted, rel_tol=tolerance, abs_tol=tolerance)


def sample(shape: tuple[int, ...], dtype: Any) -> Array:
    chance = np.random.default_rng(len(shape))
    if np.dtype(dtype).kind in "iub":
        return chance.integers(0, 2 if dtype is np.bool_ else 100, shape).astype(dtype)
    return np.asarray(chance.normal(size=shape)).astype(dtype)


# ---- shapes and types


@pytest.mark.parametrize("dtype", [*SHORT, *LONG], ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_reduction(shape: tuple[int, ...], dtype: Any) -> None:
    array = sample(shape, dtype)
    found = compute_reductions(array, REDUCTION_NAMES)
    tolerance = 1e-6 if dtype in SHORT else 1e-12
    assert set(found) == set(REDUCTION_NAMES)
    for name in REDUCTION_NAMES:
        assert close(found[name], expected(name, items_of(array)), tolerance), name


@settings(max_examples=150, deadline=None)
@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=0, max_dims=3, max_side=4),
        elements=st.floats(-1e6, 1e6, allow_subnormal=False),
    )
)
def test_any_numbers(array: Array) -> None:
    found = compute_reductions(array, REDUCTION_NAMES)
    items = items_of(array)
    scale = max([1.0, *map(abs, items)])
    for name in REDUCTION_NAMES:
        plain = name.removeprefix("abs_")
        if plain in ("variance", "std"):
            assert math.isclose(
                found[name], expected(name, items), rel_tol=1e-6, abs_tol=scale**2 * 1e-7
            )
        else:
            assert math.isclose(
                found[name], expected(name, items), rel_tol=1e-9, abs_tol=scale * 1e-9
            )


@pytest.mark.parametrize("dtype", [*SHORT, *LONG], ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2, 2)], ids=str)
def test_empty(shape: tuple[int, ...], dtype: Any) -> None:
    found = compute_reductions(np.zeros(shape, dtype), REDUCTION_NAMES)
    known = {"sum": 0.0, "prod": 1.0, "l1": 0.0, "l2": 0.0, "nans": 0, "infs": 0, "zeros": 0}
    for name, value in found.items():
        plain = name.removeprefix("abs_")
        assert value == known[plain] if plain in known else math.isnan(value)


@pytest.mark.parametrize("kind", [list, np.asfortranarray, lambda x: x[::-1, ::2], lambda x: x.T])
def test_layouts_do_not_matter(kind: Callable[[Array], Any]) -> None:
    array = np.asarray(kind(np.arange(12.0).reshape(3, 4)))
    found = compute_reductions(array, REDUCTION_NAMES)
    for name in REDUCTION_NAMES:
        assert close(found[name], expected(name, items_of(array)), 1e-12)


def test_big_endian() -> None:
    array = np.arange(5.0)
    assert compute_reductions(array.astype(">f8"), REDUCTION_NAMES) == compute_reductions(
        array, REDUCTION_NAMES
    )


# ---- what is not finite


@pytest.mark.parametrize(
    "items",
    [
        [NAN],
        [1.0, NAN, -2.0],
        [INF],
        [-INF],
        [INF, 1.0],
        [-INF, INF],
        [INF, NAN, -INF, 0.0],
        [-0.0, 0.0],
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_not_finite(items: list[float], dtype: Any) -> None:
    array = np.array(items).astype(dtype)
    found = compute_reductions(array, REDUCTION_NAMES)
    for prefix in ("", "abs_"):
        x = [abs(item) if prefix else item for item in items]
        has_nan = any(map(math.isnan, x))
        if has_nan:
            for name in (*ALLOWED_REDUCTIONS, *ALLOWED_NORMS):
                assert math.isnan(found[prefix + name]), name
            continue
        assert found[prefix + "min"] == min(x)
        assert found[prefix + "max"] == max(x)
        both = INF in x and -INF in x
        assert math.isnan(found[prefix + "sum"]) if both else found[prefix + "sum"] == sum(x)
        assert found[prefix + "l1"] == sum(map(abs, x))
        assert found[prefix + "l2"] == (INF if any(map(math.isinf, x)) else 0.0)
    assert found["nans"] == sum(map(math.isnan, items))
    assert found["infs"] == sum(map(math.isinf, items))
    assert found["zeros"] == sum(item == 0 for item in items)


def test_float8_without_infinity() -> None:
    array = np.array([1.0, NAN, 0.0], ml_dtypes.float8_e4m3fn)
    found = compute_reductions(array, COUNTS)
    assert found == {"nans": 1, "infs": 0, "zeros": 1}


# ---- large and small


@pytest.mark.parametrize(
    ("items", "l2"),
    [
        ([3e200, 4e200], 5e200),
        ([3e-200, 4e-200], 5e-200),
        ([1e308, 1e308], math.hypot(1e308, 1e308)),
        ([5e-324], 5e-324),
        ([1.5e308, 1.5e308], INF),
        ([0.0, -0.0], 0.0),
    ],
)
def test_l2_neither_overflows_nor_vanishes(items: list[float], l2: float) -> None:
    for sign in (1, -1):
        found = compute_reduction(sign * np.array(items), "l2")
        assert found == l2 or math.isclose(found, l2, rel_tol=1e-14)


def test_short_floats_are_added_in_a_long_one() -> None:
    half = compute_reductions(np.full(100_000, 60_000, np.float16), ["sum", "mean", "l2", "l1"])
    assert half["mean"] == 60_000
    assert half["l1"] == half["sum"] == np.float32(6e9)
    assert math.isclose(half["l2"], 60_000 * math.sqrt(100_000), rel_tol=1e-6)
    ones = compute_reductions(np.full(300, 1.0, ml_dtypes.bfloat16), ["sum", "variance"])
    assert ones == {"sum": 300.0, "variance": 0.0}
    big = compute_reduction(np.full(2**25, 1.0, np.float32), "sum")
    assert big == 2**25


def test_short_results_are_short_unless_they_would_be_infinite() -> None:
    array = np.array([3e38, 3e38], np.float32)
    third = compute_reduction(np.array([1.0, 0.0, 0.0], np.float32), "mean")
    assert third == np.float64(np.float32(1 / 3))
    assert math.isclose(compute_reduction(array, "sum"), 6e38, rel_tol=1e-6)
    assert math.isclose(compute_reduction(array, "prod"), 9e76, rel_tol=1e-6)
    assert compute_reduction(np.array([INF], np.float32), "sum") == INF


def test_nothing_is_warned_about() -> None:
    # Warnings are errors here.
    for items in ([3e38] * 3, [1e-45] * 3, [NAN, INF, -INF], []):
        compute_reductions(np.array(items, np.float32), REDUCTION_NAMES)
    compute_reductions(np.array([1.7e308] * 3), REDUCTION_NAMES)


def test_the_tensor_is_left_as_it_was() -> None:
    array = np.array([[3.0, -1.0], [2.0, NAN]])
    before = array.tobytes()
    array.flags.writeable = False
    compute_reductions(array, REDUCTION_NAMES)
    assert array.tobytes() == before


# ---- complex


COMPLEX = [1 + 1j, -2j, 0, 3 - 4j]


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_tensors_reduce_by_magnitude(dtype: Any) -> None:
    array = np.array(COMPLEX, dtype).reshape(2, 2)
    magnitudes = [abs(item) for item in COMPLEX]
    names = [f"abs_{name}" for name in (*ALLOWED_REDUCTIONS, *ALLOWED_NORMS)]
    found = compute_reductions(array, [*names, "l1", "l2", *COUNTS])
    for name in names:
        assert close(found[name], expected(name.removeprefix("abs_"), magnitudes), 1e-6), name
    assert close(found["l1"], math.fsum(magnitudes), 1e-6)
    assert close(found["l2"], math.hypot(*magnitudes), 1e-6)
    assert [int(found[name]) for name in COUNTS] == [0, 0, 1]


@pytest.mark.parametrize("item", [1 + 1j, 1j, cmath.rect(2.0, 0.7), 3e200 + 4e200j])
def test_the_l2_of_one_complex_number(item: complex) -> None:
    assert math.isclose(compute_reduction(np.array([item]), "l2"), abs(item), rel_tol=1e-12)


@pytest.mark.parametrize("name", ALLOWED_REDUCTIONS)
def test_complex_tensors_have_no_real_minimum(name: str) -> None:
    with pytest.raises(SMDebugTypeError, match=f"abs_{name}"):
        compute_reduction(np.array(COMPLEX), name)


@pytest.mark.parametrize("value", [["a", "b"], [b"a"], [None, 1]])
def test_strings_have_no_reductions(value: list[Any]) -> None:
    array = np.array(value, object if None in value else None)
    with pytest.raises(SMDebugTypeError, match="no reductions"):
        compute_reduction(array, "min")


# ---- names


@pytest.mark.parametrize(
    ("name", "abs_", "canonical"),
    [
        ("min", False, "min"),
        ("min", True, "abs_min"),
        ("abs_min", True, "abs_min"),
        ("abs_min", False, "abs_min"),
        ("l1", False, "l1"),
        ("l1_norm", False, "l1"),
        ("abs_l2_norm", False, "abs_l2"),
        ("l2_norm", True, "abs_l2"),
        ("nans", True, "nans"),
        ("abs_zeros", False, "zeros"),
        ("median", False, "median"),
    ],
)
def test_canonical_names(name: str, abs_: bool, canonical: str) -> None:
    assert canonical_reduction(name, abs_) == canonical
    array = np.array([-1.0, 2.0, 0.0])
    assert compute_reduction(array, name, abs_) == compute_reductions(array, [canonical])[canonical]
    assert get_numpy_reduction(name, array, abs_) == compute_reduction(array, name, abs_)


@pytest.mark.parametrize("name", ["", "avg", "abs_", "l3", "abs_abs_min", "MIN", " min", "_norm"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(SMDebugValueError, match="unknown reduction"):
        canonical_reduction(name)
    with pytest.raises(SMDebugValueError, match="unknown reduction"):
        compute_reduction(np.zeros(3), name)


def test_names_are_distinct_and_canonical() -> None:
    assert len(set(REDUCTION_NAMES)) == len(REDUCTION_NAMES)
    assert all(canonical_reduction(name) == name for name in REDUCTION_NAMES)


@pytest.mark.parametrize(
    ("tensor", "reduction", "abs_", "stored"),
    [
        ("fc.weight", "l2", True, "smdebug/reductions/abs_l2/fc.weight"),
        ("fc.weight", "l1_norm", False, "smdebug/reductions/l1/fc.weight"),
        ("a/b/c", "mean", False, "smdebug/reductions/mean/a/b/c"),
        ("dense/kernel:0", "min", False, "smdebug/reductions/min/dense/kernel"),
    ],
)
def test_stored_names(tensor: str, reduction: str, abs_: bool, stored: str) -> None:
    assert get_reduction_tensor_name(tensor, reduction, abs_) == stored


def test_a_colon_may_stay() -> None:
    assert get_reduction_tensor_name("k:0", "min", False, False) == "smdebug/reductions/min/k:0"


@given(st.text(max_size=20), st.sampled_from([*ALLOWED_REDUCTIONS, *ALLOWED_NORMS]), st.booleans())
def test_stored_names_can_be_taken_apart(tensor: str, reduction: str, abs_: bool) -> None:
    stored = get_reduction_tensor_name(tensor, reduction, abs_, remove_colon_index=False)
    assert reverse_reduction_tensor_name(stored) == (tensor, reduction, abs_)


def test_other_names_cannot_be_taken_apart() -> None:
    with pytest.raises(SMDebugValueError, match=r"fc\.weight"):
        reverse_reduction_tensor_name("fc.weight")


def test_which_floats_are_short() -> None:
    assert all(is_short_float(np.dtype(dtype)) for dtype in SHORT)
    others: list[Any] = [*LONG, np.complex64, "V2", "U3"]
    assert not any(is_short_float(np.dtype(dtype)) for dtype in others)
