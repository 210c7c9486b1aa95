"""Blocks: many tensors in columns are saved exactly as they would be one by one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Block, BlockSchema, Entry, StepBatch
from smdebug.storage.format.dtypes import dtype_name
from smdebug.storage.format.events import ALIGNMENT
from smdebug.storage.format.keys import LAST_STEP
from smdebug.storage.format.records import iterate_records
from smdebug.storage.raw_tensors import VALUE_COLUMNS, record_locations
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer import RunWriter
from smdebug.testing.runs import default_collections
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.reductions import Array
    from smdebug.storage.stores.base import Store

DTYPES = [np.dtype(name) for name in ("?", "i1", "u2", "i8", "f2", "f4", "f8", "c8")]
DTYPES += [np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)]


def arrays_of(shapes: list[tuple[int, ...]], dtype: np.dtype[Any], seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 2, shape).astype(dtype) for shape in shapes]


def schema_of(arrays: list[Array], prefix: str = "t") -> BlockSchema:
    return BlockSchema(
        tuple(f"{prefix}{number}" for number in range(len(arrays))),
        tuple(dtype_name(array.dtype) for array in arrays),
        tuple(array.shape for array in arrays),
    )


def write(store: Store, batches: list[StepBatch], format: str = "v2") -> RunReader:
    with RunWriter(store, format=format) as run:
        run.write_collections(default_collections().to_json())
        for batch in batches:
            run.submit(batch)
    reader = RunReader(store)
    reader.refresh()
    return reader


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("format", ["v1", "v2"])
def test_raw_values_come_back_bit_for_bit(
    tmp_path: Path, dtype: np.dtype[Any], format: str
) -> None:
    shapes = [(2,), (3, 5), (64,), (1, 2, 3, 4), (1000,)]
    written = {step: arrays_of(shapes, dtype, step) for step in (0, 9, 10, 123_456)}
    schema = schema_of(written[0])
    batches = [
        StepBatch(step, ModeKeys.EVAL, step // 2, [], blocks=[Block(schema, arrays)])
        for step, arrays in written.items()
    ]
    write(LocalStore(tmp_path), batches, format)
    trial = create_trial(str(tmp_path))
    extended = dtype.name in ("bfloat16", "float8_e4m3fn")
    for step, arrays in written.items():
        for number, expected in enumerate(arrays):
            found = trial.tensor(f"t{number}").value(step)
            if format == "v1" and extended:
                expected = expected.astype(np.float32)
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            assert found.tobytes() == expected.tobytes()
    assert trial.steps(mode=ModeKeys.EVAL) == [0, 4, 5, 61728]


def test_reductions_are_columns() -> None:
    schema = BlockSchema(("a", "b"), ("float32", "float32"), ((2, 3), (4,)))
    numbers = {"min": np.array([-1.0, np.nan]), "l2": np.array([2.5, np.inf])}
    blocks = [Block(schema, reductions=numbers)]
    batches = [StepBatch(step, ModeKeys.TRAIN, step, [], blocks=blocks) for step in (0, 1, 2)]
    reader = write(MemoryStore(), batches)
    rows = reader.rows("b", ["step", "min", "l2", "max", "shape", "dtype", "position"]).to_pylist()
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert math.isnan(rows[0]["min"])
    assert rows[0]["l2"] == math.inf
    assert rows[0]["max"] is None
    assert (rows[0]["shape"], rows[0]["dtype"], rows[0]["position"]) == ([4], "float32", 1)


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_scalars_of_blocks_equal_single_entries(tmp_path: Path, format: str) -> None:
    values = [np.array([0.1]), np.array(-0.0), np.array([[math.nan]]), np.array([1.5], np.float32)]
    values += [np.array([-math.inf]), np.array([7], np.int64)]
    schema = schema_of(values)
    numbers = np.array([value.item() for value in values], np.float64)
    one_by_one = [Entry(f"e{number}", value) for number, value in enumerate(values)]
    batches = [
        StepBatch(step, ModeKeys.TRAIN, step, one_by_one, blocks=[Block(schema, numbers=numbers)])
        for step in (0, 1)
    ]
    reader = write(LocalStore(tmp_path), batches, format)
    trial = create_trial(str(tmp_path))
    for number, expected in enumerate(values):
        # Format v1 makes an array of one of a number without a shape, entry or not.
        entry = trial.tensor(f"e{number}").value(1)
        found = trial.tensor(f"t{number}").value(1)
        assert (found.dtype, found.shape) == (entry.dtype, entry.shape)
        assert found.tobytes() == entry.tobytes() == expected.tobytes()
    if format == "v2":
        # No record: everything is in the row.
        (row,) = reader.rows("t0", ["step", "value", "event_file"]).slice(1).to_pylist()
        assert (row["step"], row["value"], row["event_file"]) == (1, 0.1, None)


def test_blocks_and_entries_keep_their_order(tmp_path: Path) -> None:
    arrays = arrays_of([(3,), (4,)], np.dtype("f4"))
    odd = np.arange(7, dtype=np.uint8)
    block = Block(schema_of(arrays), arrays, {"max": np.array([1.0, 2.0])})
    entries = [Entry("first", odd), Entry("loss", np.float32(0.5))]
    more = [Entry("last", odd[:5])]
    batches = [
        StepBatch(5, ModeKeys.TRAIN, 5, entries, blocks=[block]),
        StepBatch(5, ModeKeys.TRAIN, 5, more),
        StepBatch(6, ModeKeys.TRAIN, 6, [Entry("first", odd)]),
    ]
    reader = write(LocalStore(tmp_path), batches)
    positions = {}
    for name in ("first", "loss", "t0", "t1", "last"):
        row = reader.rows(name, ["step", "position"]).to_pylist()[0]
        positions[row["position"]] = name
    assert [positions[number] for number in range(5)] == ["first", "loss", "t0", "t1", "last"]
    trial = create_trial(str(tmp_path))
    np.testing.assert_array_equal(trial.tensor("t1").value(5), arrays[1])
    np.testing.assert_array_equal(trial.tensor("last").value(5), odd[:5])
    np.testing.assert_array_equal(trial.tensor("first").value(6), odd)
    assert trial.tensor("t1").reduction_value(5, "max") == 2.0


def test_a_block_twice_in_a_step_keeps_the_later() -> None:
    first, second = (arrays_of([(3,), (4,)], np.dtype("f8"), seed) for seed in (1, 2))
    schema = schema_of(first)
    batch = StepBatch(
        0, ModeKeys.TRAIN, 0, [], blocks=[Block(schema, first), Block(schema, second)]
    )
    reader = write(MemoryStore(), [batch])
    table = reader.rows("t1", VALUE_COLUMNS)
    (location,) = record_locations(table, "t1")
    assert location is not None
    np.testing.assert_array_equal(reader.read_values([location])[0], second[1])


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=4, unique=True),
    step=st.integers(0, LAST_STEP),
    size=st.integers(2, 5000),
    mode_step=st.integers(0, LAST_STEP),
)
def test_any_name_step_and_size(names: list[str], step: int, size: int, mode_step: int) -> None:
    names = [name for name in names if name.isprintable()] or ["t"]
    arrays = [np.arange(size + location, dtype=np.uint8) for location in range(len(names))]
    schema = BlockSchema(tuple(names), ("uint8",) * len(names), tuple(a.shape for a in arrays))
    store = MemoryStore()
    batch = StepBatch(step, ModeKeys.TRAIN, mode_step, [], blocks=[Block(schema, arrays)])
    reader = write(store, [batch])
    for name, array in zip(names, arrays, strict=True):
        (location,) = record_locations(reader.rows(name, VALUE_COLUMNS), name)
        assert location is not None
        assert location.offset % ALIGNMENT == 0
        np.testing.assert_array_equal(reader.read_values([location])[0], array)
    (key,) = store.list("events/")
    data = store.read(key)
    assert len(list(iterate_records(memoryview(data), key))) == len(names)
    if size >= 256:
        assert bytes(data).find(arrays[0].tobytes()) % ALIGNMENT == 0


def test_tensorboard_reads_the_records_of_blocks(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util import tensor_util

    arrays = arrays_of([(3, 2), (40,)], np.dtype("f4"))
    batch = StepBatch(77, ModeKeys.TRAIN, 7, [], blocks=[Block(schema_of(arrays), arrays)])
    write(LocalStore(tmp_path), [batch])
    (path,) = tmp_path.rglob("*.tfevents")
    events = list(EventFileLoader(str(path)).Load())
    assert [event.step for event in events] == [77, 77]
    assert [event.wall_time for event in events] == [batch.time] * 2
    for event, array in zip(events, arrays, strict=True):
        (value,) = event.summary.value
        np.testing.assert_array_equal(tensor_util.make_ndarray(value.tensor), array)
