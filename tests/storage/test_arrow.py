"""Conversions between Arrow and NumPy, compared with pyarrow's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from smdebug.storage.arrow import from_list, from_numpy, pa, to_numpy

NUMBERS: dict[str, list[Any]] = {
    "int64": [3, -(2**62), 0, 7, 1, 2, 9, 4, 5],
    "int32": [3, -(2**31), 0, 7, 1, 2, 9, 4, 5],
    "uint8": [3, 255, 0, 7, 1, 2, 9, 4, 5],
    "float32": [0.5, float("nan"), float("inf"), -0.0, 1, 2, 9, 4, 5],
    "float64": [0.1, float("nan"), float("-inf"), -0.0, 1, 2, 9, 4, 5],
    "bool": [True, False, True, True, False, False, True, False, True],
}


def same(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_to_numpy(kind: str) -> None:
    array = pa.array(NUMBERS[kind], pa.type_for_alias(kind))
    for part in (array, array.slice(1, 5), array.slice(3), array[:0], pa.chunked_array([array])):
        expected = part.to_numpy() if isinstance(part, pa.ChunkedArray) else (
            part.to_numpy(zero_copy_only=False)
        )  # fmt: skip
        same(to_numpy(part), expected)


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8", "float32", "float64"])
def test_missing_numbers_are_nan(kind: str) -> None:
    values = [None if place % 3 == 1 else each for place, each in enumerate(NUMBERS[kind])]
    array = pa.array(values, pa.type_for_alias(kind))
    for part in (array, array.slice(1, 5), array.slice(2, 2), array.slice(1, 1)):
        same(to_numpy(part), part.to_numpy(zero_copy_only=False))
    chunked = pa.chunked_array([array.slice(0, 1), array.slice(1)])
    same(to_numpy(chunked), chunked.to_numpy())
    replaced = to_numpy(array, null=7)
    assert replaced.dtype == np.dtype(kind)
    np.testing.assert_array_equal(replaced, [7 if each is None else each for each in values])


def test_missing_booleans_are_replaced() -> None:
    array = pa.array([True, None, False])
    assert to_numpy(array, null=False).tolist() == [True, False, False]


@pytest.mark.parametrize("chunks", [0, 1, 2, 3])
def test_chunks_are_joined(chunks: int) -> None:
    array = pa.chunked_array([pa.array([1, 2], pa.int32())] * chunks, pa.int32())
    same(to_numpy(array), array.to_numpy())


def test_one_chunk_is_not_copied() -> None:
    array = pa.array(np.arange(9))
    assert np.shares_memory(to_numpy(pa.chunked_array([array])), to_numpy(array))


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_from_numpy(kind: str) -> None:
    values = np.array(NUMBERS[kind], kind)
    valid = np.arange(len(values)) % 4 != 1
    for part in (values, values[::2], values[:0]):
        found = from_numpy(part)
        found.validate(full=True)
        # As bytes: NaN differs from itself.
        assert found.type == pa.array(part).type
        same(to_numpy(found), part)
    found = from_numpy(values, valid)
    found.validate(full=True)
    assert found.is_valid().to_pylist() == valid.tolist()
    same(to_numpy(found.drop_null()), values[valid])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["loss", None, "", "größe \U0001f4a1"], pa.string()),
        ([], pa.string()),
        ([1, None, -5], pa.int32()),
        ([1, None, 2**62], pa.int64()),
        ([None, None], pa.float64()),
        ([0.5, None, float("inf")], pa.float64()),
        ([True, None, False], pa.bool_()),
        ([[2, 3], None, [], [7]], pa.list_(pa.int64())),
        ([], pa.list_(pa.int64())),
    ],
    ids=str,
)
def test_lists(values: list[Any], kind: Any) -> None:
    found = from_list(values, kind)
    found.validate(full=True)
    assert found.equals(pa.array(values, kind))


def test_integers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        from_list([2**40], pa.int32())
    with pytest.raises(OverflowError):
        from_list([2**70], pa.int64())
