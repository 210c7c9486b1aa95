"""Format v1, written by us and taken apart by hand, and what damage does to it."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smdebug.exceptions import DataCorrupted, IndexReaderException, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.format.keys import IndexName, parse_index_key
from smdebug.storage.raw_tensors import VALUE_COLUMNS, record_locations
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.v1.index import parse_v1_step
from smdebug.storage.writer import RunWriter

if TYPE_CHECKING:
    from smdebug.reductions import Array

INDEX = "index/000000000/000000000003_worker_0.json"
EVENTS = "events/000000000003/000000000003_worker_0.tfevents"
WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def write(store: MemoryStore, *entries: Entry, step: int = 3, end: bool = True) -> None:
    writer = RunWriter(store, format="v1")
    writer.submit(StepBatch(step, ModeKeys.TRAIN, step, list(entries), 1.5))
    writer.close(end)


def written(*entries: Entry) -> MemoryStore:
    store = MemoryStore()
    write(store, *entries)
    return store


def index_of(store: MemoryStore) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(bytes(store.read(INDEX)))
    return content


def reader_of(store: MemoryStore) -> RunReader:
    reader = RunReader(store)
    reader.refresh()
    return reader


def values(store: MemoryStore, tensor: str) -> list[Any]:
    reader = reader_of(store)
    locations = record_locations(reader.rows(tensor, VALUE_COLUMNS), tensor)
    return reader.read_values([location for location in locations if location is not None])


def records_by_hand(data: bytes) -> list[tuple[int, int, bytes]]:
    """(start, length, payload) of every record, the constant footer checked."""
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        assert data[at + 12 + length : at + 16 + length] == bytes.fromhex("b3c02d06")
        found.append((at, length + 16, data[at + 12 : at + 12 + length]))
        at += length + 16
    return found


# ---- what is written


def test_the_files_of_a_step() -> None:
    store = written(Entry("weight", WEIGHT))
    assert list(store.list()) == [EVENTS, INDEX, "training_job_end.ts"]
    assert bytes(store.read("training_job_end.ts")) == b""
    content = index_of(store)
    assert content["meta"] == {"mode": "TRAIN", "mode_step": 3, "event_file_name": EVENTS}
    ((start, length, payload),) = records_by_hand(bytes(store.read(EVENTS)))
    (entry,) = content["tensor_payload"]
    assert (entry["tensorname"], entry["start_idx"], entry["length"]) == ("weight", start, length)
    assert WEIGHT.tobytes() in payload
    assert "shape_payload" not in content
    assert b"\n" not in bytes(store.read(INDEX))


def test_reductions_are_separate_records() -> None:
    store = written(Entry("weight", WEIGHT, {"min": 0.0, "abs_l2": 7.5}))
    content = index_of(store)
    assert [entry["tensorname"] for entry in content["tensor_payload"]] == [
        "smdebug/reductions/min/weight",
        "smdebug/reductions/abs_l2/weight",
        "weight",
    ]
    found = records_by_hand(bytes(store.read(EVENTS)))
    locations = [(entry["start_idx"], entry["length"]) for entry in content["tensor_payload"]]
    assert locations == [(start, length) for start, length, _ in found]
    (row,) = reader_of(store).rows("weight", ["min", "abs_l2", "max"]).to_pylist()
    assert row == {"min": 0.0, "abs_l2": 7.5, "max": None}
    assert set(reader_of(store).names()) == {"weight"}


def test_a_shape_only_without_the_raw_value() -> None:
    store = written(
        Entry("raw", WEIGHT, shape=(2, 3), dtype="float32"),
        Entry("reduced", None, {"mean": 2.5}, shape=(20, 10), dtype="float32"),
    )
    content = index_of(store)
    (entry,) = content["shape_payload"]
    assert entry["tensorname"] == entry["originalname"] == "reduced"
    assert entry["shape"] == [20, 10]
    (row,) = reader_of(store).rows("reduced", ["shape", "dtype", "mean", "offset"]).to_pylist()
    assert row == {"shape": [20, 10], "dtype": "float32", "mean": 2.5, "offset": None}


def test_only_shapes_need_no_event_file() -> None:
    store = written(Entry("x", shape=(4,), dtype="int64"))
    content = index_of(store)
    assert "event_file_name" not in content["meta"]
    assert "tensor_payload" not in content
    assert list(store.list("events/")) == []


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "U1"])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5, 2)])
def test_empty_tensors_are_a_shape(dtype: str, shape: tuple[int, ...]) -> None:
    store = written(Entry("x", np.zeros(shape, dtype)))
    (row,) = reader_of(store).rows("x", ["shape", "dtype"]).to_pylist()
    assert row == {"shape": list(shape), "dtype": "str" if dtype == "U1" else dtype}
    assert "tensor_payload" not in index_of(store)


@pytest.mark.parametrize(
    "kind", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
)
def test_short_floats_become_float32(kind: type) -> None:
    array: Array = np.array([1.5, -2.0, 0.0, np.nan], kind)
    (found,) = values(written(Entry("x", array)), "x")
    assert found.dtype == np.float32
    assert np.array_equal(found, array.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("dtype", ["?", "i1", "i8", "u2", "u8", "f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_raw_values(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    (found,) = values(written(Entry("x", array)), "x")
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()


def test_strings() -> None:
    array = np.array(["a", "", "ünï"])
    (found,) = values(written(Entry("x", array)), "x")
    assert found.tolist() == array.tolist()


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 0.1, 1e300, -1e300, 5e-324, 1e-50, math.nan, math.inf, -math.inf, 2.0**60 + 2**8],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64"])
def test_reductions_keep_their_value(value: float, dtype: str) -> None:
    """Written as float32 only where that is exact, and without a word about overflow."""
    store = written(Entry("x", None, {"sum": value}, shape=(3,), dtype=dtype))
    (row,) = reader_of(store).rows("x", ["sum"]).to_pylist()
    assert struct.pack("<d", row["sum"]) == struct.pack("<d", value) or math.isnan(value)
    assert math.isnan(row["sum"]) == math.isnan(value)


def test_a_name_saved_twice_keeps_the_later() -> None:
    store = written(Entry("x", np.full(3, 1.0)), Entry("x", np.full(3, 2.0)))
    (found,) = values(store, "x")
    assert found.tolist() == [2.0, 2.0, 2.0]


def test_many_steps_and_modes() -> None:
    store = MemoryStore()
    with RunWriter(store, format="v1") as writer:
        for step in range(5):
            mode = ModeKeys.EVAL if step == 3 else ModeKeys.TRAIN
            writer.submit(StepBatch(step, mode, step * 2, [Entry("x", WEIGHT + step)]))
    reader = reader_of(store)
    rows = reader.rows("x", ["step", "mode", "mode_step", "worker"]).to_pylist()
    assert [(row["step"], row["mode"], row["mode_step"]) for row in rows] == [
        (0, "TRAIN", 0), (1, "TRAIN", 2), (2, "TRAIN", 4), (3, "EVAL", 6), (4, "TRAIN", 8),
    ]  # fmt: skip
    assert {row["worker"] for row in rows} == {"worker_0"}
    assert [value[0, 0] for value in values(store, "x")] == [0, 1, 2, 3, 4]
    assert reader.names_at(3) == {"x"}
    assert reader.names_at(9) == set()


# ---- saving a step again


def test_a_resumed_run_leaves_the_old_event_file_alone() -> None:
    store = MemoryStore()
    write(store, Entry("x", WEIGHT), end=False)
    before = bytes(store.read(EVENTS))
    for attempt in (1, 2, 3):
        write(store, Entry("x", WEIGHT + attempt), end=False)
        assert bytes(store.read(EVENTS)) == before
        (found,) = values(store, "x")
        assert np.array_equal(found, WEIGHT + attempt)
    assert len(list(store.list("events/"))) == 4


def test_an_open_reader_can_still_read_what_it_found() -> None:
    store = MemoryStore()
    write(store, Entry("x", WEIGHT), end=False)
    reader = reader_of(store)
    locations = [
        location for location in record_locations(reader.rows("x", VALUE_COLUMNS), "x") if location
    ]
    write(store, Entry("x", WEIGHT + 1), end=False)
    assert np.array_equal(reader.read_values(locations)[0], WEIGHT)


def test_worker_with_a_longer_name_is_another_worker() -> None:
    store = MemoryStore()
    for worker in ("worker_01", "worker_0-000001", "worker_0"):
        with RunWriter(store, worker, format="v1") as writer:
            writer.submit(StepBatch(3, ModeKeys.TRAIN, 3, [Entry("x", WEIGHT)]))
    assert EVENTS in set(store.list())
    assert {row["worker"] for row in reader_of(store).rows("x", ["worker"]).to_pylist()} == {
        "worker_01", "worker_0-000001", "worker_0",
    }  # fmt: skip


def test_attempts_and_workers_never_share_an_event_file() -> None:
    """The second attempt of one worker has the name another worker's first would have."""
    store = MemoryStore()
    for worker, value in (("w", 1.0), ("w", 2.0), ("w-000001", 3.0), ("w", 4.0)):
        with RunWriter(store, worker, format="v1") as writer:
            batch = StepBatch(3, ModeKeys.TRAIN, 3, [Entry("x", np.full(3, value))])
            writer.submit(batch)
    reader = reader_of(store)
    table = reader.rows("x", [*VALUE_COLUMNS, "worker"])
    locations = [location for location in record_locations(table, "x") if location]
    found = [float(value[0]) for value in reader.read_values(locations)]
    assert dict(zip(table["worker"].to_pylist(), found, strict=True)) == {"w": 4.0, "w-000001": 3.0}


# ---- damage


ENTRIES = [
    Entry("weight", WEIGHT, {"mean": 2.5}),
    Entry("bias", np.arange(3.0)),
    Entry("shape", shape=(5, 6), dtype="float32"),
]


def everything(store: MemoryStore) -> Any:
    """All that a reader can learn of a run."""
    reader = reader_of(store)
    table = reader.table()
    found = {}
    for tensor in sorted(reader.names()):
        locations = record_locations(reader.rows(tensor, VALUE_COLUMNS), tensor)
        read = reader.read_values([location for location in locations if location])
        found[tensor] = [(str(value.dtype), value.tolist()) for value in read]
    return table.to_pylist(), found


def damaged_copy(store: MemoryStore, key: str, location: int, change: int) -> MemoryStore:
    copy = MemoryStore()
    for other in store.list():
        data = bytearray(store.read(other))
        if other == key:
            data[location] ^= change
        copy.write(other, [data])
    return copy


@pytest.mark.parametrize("entries", [ENTRIES, ENTRIES[2:]], ids=["tensors", "shapes"])
def test_no_damage_to_an_index_changes_what_is_read(entries: list[Entry]) -> None:
    store = written(*entries)
    expected = everything(store)
    for location in range(len(store.read(INDEX))):
        for change in (0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80):
            with contextlib.suppress(IndexReaderException, SMDebugValueError):
                assert everything(damaged_copy(store, INDEX, location, change)) == expected


def test_every_byte_of_an_event_file_counts() -> None:
    store = written(*ENTRIES[:2])
    for location in range(len(store.read(EVENTS))):
        with pytest.raises(DataCorrupted) as caught:
            everything(damaged_copy(store, EVENTS, location, 1 << location % 8))
        assert caught.value.key == EVENTS
        assert caught.value.offset is not None
        assert caught.value.offset <= location


def test_every_cut_of_an_event_file_counts() -> None:
    store = written(Entry("x", WEIGHT))
    data = bytes(store.read(EVENTS))
    for length in range(len(data)):
        store.write(EVENTS, [data[:length]])
        with pytest.raises(DataCorrupted, match=EVENTS):
            everything(store)


def test_every_cut_of_an_index_counts() -> None:
    store = written(*ENTRIES)
    data = bytes(store.read(INDEX))
    for length in range(len(data)):
        store.write(INDEX, [data[:length]])
        with pytest.raises(IndexReaderException, match=INDEX):
            everything(store)


# ---- files of smdebug 1.0, and invalid ones


def parsed(content: Any) -> Any:
    name = parse_index_key(INDEX)
    assert name is not None
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return parse_v1_step(data, INDEX, name)


META: dict[str, Any] = {"mode": "TRAIN", "mode_step": 10, "event_file_name": EVENTS}
TENSOR: dict[str, Any] = {"tensorname": "x", "start_idx": 0, "length": 950}


def test_index_file_of_smdebug_1() -> None:
    content = {
        "meta": META,
        "tensor_payload": [TENSOR],
        "shape_payload": [{"tensorname": "y", "originalname": "y:0", "shape": [20, 10]}],
    }
    step = parsed(content)
    assert (step.step, step.mode, step.mode_step) == (3, ModeKeys.TRAIN.value, 10)
    assert (step.names, step.locations) == (("x",), [(0, 950, None)])
    assert step.shapes == {"y": ((20, 10), None)}


def test_unknown_keys_are_ignored() -> None:
    content = {"meta": {**META, "more": 1}, "tensor_payload": [{**TENSOR, "more": 2}], "more": 3}
    assert parsed(content).names == ("x",)


def test_the_last_of_equal_names_wins() -> None:
    content = {"meta": META, "tensor_payload": [TENSOR, {**TENSOR, "start_idx": 5}]}
    assert parsed(content).locations == [(5, 950, None)]


FOREIGN: list[Any] = [
    b"",
    b"not json",
    b"\xff\xfe\xff",
    b"[" * 100_000,
    b"9" * 10_000,
    [],
    None,
    {},
    {"tensor_payload": []},
    {"meta": {}, "tensor_payload": []},
    {"meta": None, "tensor_payload": []},
    {"meta": "x", "tensor_payload": []},
    {"meta": META},
    {"meta": {**META, "mode": "SLEEP"}, "tensor_payload": []},
    {"meta": {**META, "mode": ["TRAIN"]}, "tensor_payload": []},
    {"meta": {**META, "mode_step": "x"}, "tensor_payload": []},
    {"meta": {**META, "mode_step": None}, "tensor_payload": []},
    {"meta": {**META, "mode_step": math.inf}, "tensor_payload": []},
    {"meta": {**META, "mode_step": 10**30}, "tensor_payload": []},
    {"meta": META, "tensor_payload": 5},
    {"meta": META, "tensor_payload": [5]},
    {"meta": META, "tensor_payload": [{}]},
    {"meta": META, "tensor_payload": [{**TENSOR, "tensorname": 5}]},
    {"meta": META, "tensor_payload": [{**TENSOR, "tensorname": None}]},
    {"meta": META, "tensor_payload": [{**TENSOR, "tensorname": []}]},
    {"meta": META, "tensor_payload": [{**TENSOR, "start_idx": -1}]},
    {"meta": META, "tensor_payload": [{**TENSOR, "start_idx": math.inf}]},
    {"meta": META, "tensor_payload": [{**TENSOR, "start_idx": 10**30}]},
    {"meta": META, "tensor_payload": [{**TENSOR, "length": None}]},
    {"meta": META, "tensor_payload": [{**TENSOR, "length": -1}]},
    {"meta": META, "tensor_payload": [{**TENSOR, "length": 10**30}]},
    {"meta": {"mode": "TRAIN", "mode_step": 1}, "tensor_payload": [TENSOR]},
    {"meta": {**META, "event_file_name": 5}, "tensor_payload": [TENSOR]},
    {"meta": META, "shape_payload": [{"tensorname": "x"}]},
    {"meta": META, "shape_payload": [{"tensorname": "x", "shape": 5}]},
    {"meta": META, "shape_payload": [{"tensorname": "x", "shape": ["a"]}]},
    {"meta": META, "shape_payload": [{"tensorname": "x", "shape": [-1]}]},
    {"meta": META, "shape_payload": [{"tensorname": "x", "shape": [10**30]}]},
    {"meta": META, "shape_payload": [{"tensorname": "x", "shape": [math.inf]}]},
    {"meta": META, "shape_payload": [{"tensorname": 5, "shape": [1]}]},
    {"meta": META, "shape_payload": [{"tensorname": "x", "shape": [1], "dtype": 5}]},
]


@pytest.mark.parametrize(
    "content", FOREIGN, ids=lambda content: str(content).replace(str(META), "META")[:80]
)
def test_invalid_index_files_are_rejected(content: Any) -> None:
    with pytest.raises(IndexReaderException, match=INDEX):
        parsed(content)


def test_a_negative_mode_step() -> None:
    with pytest.raises(SMDebugValueError, match="mode_step"):
        parsed({"meta": {**META, "mode_step": -1}, "tensor_payload": []})


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes(data: bytes) -> None:
    with pytest.raises((IndexReaderException, SMDebugValueError)):
        parse_v1_step(data, INDEX, IndexName(3, None, "w"))


def test_tensor_named_like_a_checksum_in_a_file_of_smdebug_1() -> None:
    payload = [{"tensorname": "crc32_head.weight", "start_idx": 0, "length": 20}]
    meta = {"mode": "TRAIN", "mode_step": 0, "event_file_name": "events/x"}
    data = json.dumps({"meta": meta, "tensor_payload": payload}).encode()
    found = parse_v1_step(data, "index/x.json", IndexName(0, None, "worker_0"))
    assert found.names == ("crc32_head.weight",)


# ---- what lies in event files that are damaged or gone


def v1_run(value: Any) -> MemoryStore:
    store = MemoryStore()
    with RunWriter(store, format="v1") as writer:
        entry = Entry("x", value, {"l2": 2.0}, shape=(3,), dtype="float32")
        writer.submit(StepBatch(0, ModeKeys.TRAIN, 0, [entry], time=5.0))
    return store


def test_a_reduction_whose_event_file_is_gone_is_an_error() -> None:
    store = v1_run(None)
    (key,) = store.list("events/")
    store.delete(key)
    reader = RunReader(store)
    reader.refresh()
    with pytest.raises(DataCorrupted, match="not there"):
        reader.table()
    with pytest.raises(DataCorrupted, match="not there"):
        reader.v1_time("worker_0", 0)


def test_the_time_of_a_step_is_checked() -> None:
    store = v1_run(np.zeros(5000, np.float32))
    (key,) = store.list("events/")
    reader = RunReader(store)
    reader.refresh()
    assert reader.v1_time("worker_0", 0) == 5.0
    data = bytearray(store.read(key))
    data[12 + 8] ^= 1
    store.write(key, [data])
    reader = RunReader(store)
    reader.refresh()
    with pytest.raises(DataCorrupted, match="checksum"):
        reader.v1_time("worker_0", 0)
