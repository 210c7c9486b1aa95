"""What a v2 segment holds: every element type, bit for bit, from both stores and back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.format.dtypes import dtype_name, dtype_of, plain_array
from smdebug.storage.raw_tensors import VALUE_COLUMNS, as_dtype, record_locations
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.v2.segment import scalar_value
from smdebug.storage.writer import RunWriter

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.reductions import Array
    from smdebug.storage.stores.base import Store

EXTENDED = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
NUMERIC = [
    np.dtype(name)
    for name in ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
]
NUMERIC += [np.dtype(kind) for kind in EXTENDED]


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path)


def saved(store: Store, *arrays: Array) -> list[Array]:
    """Writes arrays as tensors of one step and reads them back."""
    with RunWriter(store) as run:
        entries = [Entry(f"t{number}", array) for number, array in enumerate(arrays)]
        run.submit(StepBatch(7, ModeKeys.TRAIN, 7, entries))
    reader = RunReader(store)
    reader.refresh()
    return [read_back(reader, f"t{number}") for number in range(len(arrays))]


def read_back(reader: RunReader, tensor: str) -> Array:
    table = reader.rows(tensor, VALUE_COLUMNS)
    (row,) = table.to_pylist()
    (location,) = record_locations(table, tensor)
    if location is not None:
        assert row["value"] is None
        (value,) = reader.read_values([location])
        return as_dtype(value, row["dtype"])
    found: Array = np.array(row["value"]).astype(dtype_of(row["dtype"])).reshape(row["shape"])
    return found


def bits_of(dtype: np.dtype[Any], count: int, seed: int = 0) -> Array:
    """Any bits at all; for bool, what a bool may be."""
    data = np.random.default_rng(seed).integers(0, 256, count * dtype.itemsize, np.uint8)
    if dtype == np.bool_:
        data &= 1
    found: Array = data.view(dtype)
    return found


def assert_same(found: Array, expected: Array) -> None:
    expected = plain_array(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_every_type_and_shape(store: Store, dtype: np.dtype[Any]) -> None:
    arrays = [
        bits_of(dtype, math.prod(shape), seed).reshape(shape)
        for seed, shape in enumerate([(), (1,), (3,), (2, 3), (2, 3, 4), (0,), (3, 0), (1, 1, 1)])
    ]
    for found, expected in zip(saved(store, *arrays), arrays, strict=True):
        assert_same(found, expected)


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_every_memory_layout(store: Store, dtype: np.dtype[Any]) -> None:
    array = bits_of(dtype, 24).reshape(4, 6)
    arrays = [array.T, array[::2], array[:, 1:3], array[::-1], np.broadcast_to(array[0], (3, 6))]
    if dtype.kind in "iufc" and dtype.itemsize > 1:
        arrays.append(array.byteswap().view(dtype.newbyteorder(">")))
        arrays.append(array.byteswap().view(dtype.newbyteorder(">"))[0, 0].reshape(()))
    for found, expected in zip(saved(store, *arrays), arrays, strict=True):
        assert_same(found, expected)


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "", "ünï 🧪"]),
        np.array([["a", "b"], ["c", "d"]]),
        np.array("zero dimensions"),
        np.array(["one"]),
        np.array([], np.str_),
        np.array([b"abc", b"\xff\xfe", b""]),
        np.array([b"plain ascii", b"text"]),
        np.array(b"zero dimensions"),
        np.array([b"\xed\xa0\x80"]),
        np.array([], np.bytes_),
        np.array(["objects", "of text"], object),
        np.array(["big", "endian"]).astype(">U6"),
    ],
    ids=repr,
)
def test_strings_and_bytes(store: Store, array: Array) -> None:
    (found,) = saved(store, array)
    assert found.dtype.kind == ("U" if array.dtype.kind == "O" else array.dtype.kind)
    assert found.shape == array.shape
    assert found.tolist() == array.tolist()


@pytest.mark.parametrize("size", [1 << 14, (1 << 18) + 1, 1 << 20])
def test_large_tensors(store: Store, size: int) -> None:
    arrays = [np.arange(size, dtype=np.float32), np.arange(5.0), -np.arange(size, dtype=np.float64)]
    for found, expected in zip(saved(store, *arrays), arrays, strict=True):
        assert_same(found, expected)


def test_mapped_tensors_are_aligned_read_only_views(tmp_path: Path) -> None:
    arrays = [np.arange(1 << 15, dtype=np.float32), np.arange(1 << 15, dtype=np.complex128)]
    for found in saved(LocalStore(tmp_path), *arrays):
        assert found.flags.aligned
        assert not found.flags.writeable
        assert found.ctypes.data % 64 == 0


# ---- one-element tensors live in the index when float64 can hold them


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_scalar_value_is_exact_or_none(dtype: np.dtype[Any], data: st.DataObject) -> None:
    raw = data.draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    if dtype == np.bool_:
        raw = bytes([raw[0] & 1])
    array = np.frombuffer(raw, np.uint8).view(dtype).reshape(())
    value = scalar_value(array)
    if value is not None:
        assert np.array(value).astype(dtype).tobytes() == array.tobytes()
        if dtype.kind in "iu":
            assert int(value) == int(array)


EXACT = [
    np.array(2**53, np.int64), np.array(-(2**63), np.int64), np.array(True), np.array(-0.0),
    np.array(math.inf, np.float16), np.array(5e-324), np.array(0.1, np.float32),
    np.array(1.5, ml_dtypes.bfloat16), np.array([[2]], np.int8), np.array(2**63, np.uint64),
]  # fmt: skip
INEXACT = [
    np.array(2**53 + 1, np.int64), np.array(2**63 - 1, np.int64), np.array(2**64 - 1, np.uint64),
    np.array(-(2**53) - 1, np.int64), np.array(1 + 2j), np.array("a"), np.array([1.0, 2.0]),
    np.array([], np.float32), np.array([0x7F800001], np.uint32).view(np.float32),
]  # fmt: skip


@pytest.mark.parametrize("array", EXACT, ids=repr)
def test_in_the_index(store: Store, array: Array) -> None:
    assert scalar_value(array) is not None
    (found,) = saved(store, array)
    assert_same(found, array)
    assert list(store.list("events/")) == []


@pytest.mark.parametrize("array", INEXACT, ids=repr)
def test_in_a_record(store: Store, array: Array) -> None:
    assert scalar_value(array) is None
    (found,) = saved(store, array)
    assert found.tolist() == array.tolist() or found.tobytes() == array.tobytes()
    assert len(list(store.list("events/"))) == 1


@pytest.mark.parametrize(
    "bits", [0x7FF8_0000_0000_0001, 0x7FF0_0000_0000_0001, 0xFFF8_DEAD_0000_0000]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_payloads_of_nan(store: Store, bits: int, dtype: type) -> None:
    array: Array = np.array([bits], np.uint64).view(np.float64)
    if dtype is np.float32:
        array = np.array([bits >> 32 | 1], np.uint32).view(np.float32)
    (found,) = saved(store, array)
    assert_same(found, array)


# ---- what a row says


def test_a_row(store: Store) -> None:
    entry = Entry("w", np.arange(6, dtype=np.float32).reshape(2, 3), {"mean": 2.5, "nans": 0.0})
    reduced = Entry("r", None, {"abs_max": math.inf}, shape=(5, 6), dtype="bfloat16", time=9.0)
    with RunWriter(store, "w1") as run:
        run.submit(StepBatch(4, ModeKeys.EVAL, 2, [entry, reduced], time=3.0))
    reader = RunReader(store)
    reader.refresh()
    reduced_row, row = reader.table().to_pylist()
    assert row["offset"] == 0
    assert row["event_file"] == "events/000000000004/000000000004-000000_w1.tfevents"
    assert len(store.read(row["event_file"])) == row["length"]
    expected = {
        "step": 4, "mode": "EVAL", "mode_step": 2, "worker": "w1", "tensor": "w", "time": 3.0,
        "dtype": "float32", "shape": [2, 3], "mean": 2.5, "nans": 0.0, "position": 0, "seq": 0,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    expected = {
        "tensor": "r", "time": 9.0, "dtype": "bfloat16", "shape": [5, 6], "abs_max": math.inf,
        "mean": None, "event_file": None, "offset": None, "position": 1,
    }  # fmt: skip
    assert {name: reduced_row[name] for name in expected} == expected


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_the_shape_of_one_element(store: Store, shape: tuple[int, ...]) -> None:
    """A run with only losses still has their shapes."""
    with RunWriter(store) as run:
        run.submit(StepBatch(0, ModeKeys.TRAIN, 0, [Entry("loss", np.full(shape, 0.5))]))
    reader = RunReader(store)
    reader.refresh()
    assert reader.rows("loss", ["shape"]).to_pylist() == [{"shape": list(shape)}]


@pytest.mark.parametrize("name", ["", "a/b:0", "ünï", "x" * 5000, "a\0b", ".."])
@pytest.mark.parametrize("format", ["v1", "v2"])
def test_unusual_tensor_names(store: Store, name: str, format: str) -> None:
    with RunWriter(store, format=format) as run:
        run.submit(StepBatch(0, ModeKeys.TRAIN, 0, [Entry(name, np.arange(3.0))]))
    reader = RunReader(store)
    reader.refresh()
    assert set(reader.names()) == {name}
    assert read_back(reader, name).tolist() == [0.0, 1.0, 2.0]


def test_names_of_types_in_the_index(store: Store) -> None:
    with RunWriter(store) as run:
        entries = [Entry(str(dtype), np.zeros(3, dtype)) for dtype in NUMERIC]
        run.submit(StepBatch(0, ModeKeys.TRAIN, 0, entries))
    reader = RunReader(store)
    reader.refresh()
    for dtype in NUMERIC:
        assert reader.rows(str(dtype), ["dtype"]).to_pylist() == [{"dtype": dtype_name(dtype)}]
