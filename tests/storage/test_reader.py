"""The reader: what it finds, what it refuses, and what it survives."""

from __future__ import annotations

import logging
import multiprocessing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from smdebug.exceptions import DataCorrupted, IndexReaderException, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import REDUCTION_NAMES
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.format.keys import event_key, index_key
from smdebug.storage.raw_tensors import VALUE_COLUMNS, record_locations
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.v2 import index_bytes, index_file
from smdebug.storage.v2.index import IndexRow, encode_index, newest_rows, rows_to_table
from smdebug.storage.writer import RunWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.context import SpawnProcess
    from pathlib import Path

    from smdebug.reductions import Array
    from smdebug.storage.raw_tensors import RecordLocation
    from smdebug.storage.stores.base import Store

FORMATS = ["v1", "v2"]


def batch_of(step: int, value: float = 0.0, name: str = "x", size: int = 3) -> StepBatch:
    return StepBatch(step, ModeKeys.TRAIN, step, [Entry(name, np.full(size, value))], 1.5)


def write(store: Store, steps: range, value: float = 0.0, **options: Any) -> None:
    end = options.pop("end", True)
    run = RunWriter(store, flush_seconds=1e6, **options)
    for step in steps:
        run.submit(batch_of(step, step + value))
    run.close(end)


def reader_of(store: Store) -> RunReader:
    reader = RunReader(store)
    reader.refresh()
    return reader


def locations(reader: RunReader, tensor: str = "x") -> list[RecordLocation]:
    return [
        location
        for location in record_locations(reader.rows(tensor, VALUE_COLUMNS), tensor)
        if location
    ]


def values(reader: RunReader, tensor: str = "x") -> list[float]:
    return [float(value[0]) for value in reader.read_values(locations(reader, tensor))]


class RemoteStore(MemoryStore):
    """A memory store that counts as remote and records its requests."""

    parallel = 4
    remote = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int, int | None]] = []
        self.before_read: Callable[[str], None] = lambda key: None

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        self.before_read(key)
        self.asked.append((key, start, length))
        return super().read(key, start, length)


@pytest.fixture(params=["memory", "local", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    makers: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "local": lambda: LocalStore(tmp_path / "run"),
        "remote": RemoteStore,
    }
    return makers[request.param]()


# ---- finding


@pytest.mark.parametrize("format", FORMATS)
def test_empty_store(store: Store, format: str) -> None:
    reader = RunReader(store)
    assert reader.refresh() is False
    assert reader.version == 0
    assert not reader.finished()
    assert reader.names() == {}
    assert reader.steps() == {}
    assert reader.names_at(0) == set()
    assert reader.rows("x", ["step", "value"]).num_rows == 0
    assert reader.table(["step"]).num_rows == 0
    assert reader.table().num_rows == 0
    assert reader.collections() == {}
    assert reader.parquet_files() is None


@pytest.mark.parametrize("format", FORMATS)
def test_a_whole_run(store: Store, format: str) -> None:
    write(store, range(5), format=format)
    reader = reader_of(store)
    assert reader.finished()
    assert set(reader.names()) == {"x"}
    assert reader.steps()["worker_0"].step.tolist() == [0, 1, 2, 3, 4]
    assert values(reader) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert reader.table(["step", "tensor"]).to_pylist() == [
        {"step": step, "tensor": "x"} for step in range(5)
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_refreshing(store: Store, format: str) -> None:
    reader = RunReader(store)
    write(store, range(2), format=format, end=False)
    assert reader.refresh() is True
    assert reader.refresh() is False
    version = reader.version
    write(store, range(2, 4), format=format)
    assert not [location for location in locations(reader) if location.step > 1]
    assert reader.refresh() is True
    assert reader.version > version
    assert values(reader) == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("format", FORMATS)
def test_refreshing_since_a_step(store: Store, format: str) -> None:
    run = RunWriter(store, format=format, flush_seconds=1e6)
    reader = RunReader(store)
    for step in (0, 999, 1000, 5000):
        run.submit(batch_of(step, step))
        run.finish_step()
        run.flush()
        assert reader.refresh(since_step=step) is True
        assert reader.refresh(since_step=step) is False
        assert reader.refresh(since_step=step + 1) is False
    assert values(reader) == [0.0, 999.0, 1000.0, 5000.0]
    run.close()


def test_both_formats_in_one_run(store: Store) -> None:
    write(store, range(3), format="v1", end=False)
    write(store, range(2, 5), value=100.0)
    reader = reader_of(store)
    assert values(reader) == [0.0, 1.0, 102.0, 103.0, 104.0]
    assert reader.parquet_files() is None


def test_parquet_files_that_are_the_whole_index(store: Store) -> None:
    for worker in ("a", "b"):
        write(store, range(3), worker=worker)
    write(store, range(3, 6), worker="a")
    reader = reader_of(store)
    assert reader.parquet_files() == list(store.list("index/"))


def test_parquet_files_that_overlap(store: Store) -> None:
    run = RunWriter(store, flush_seconds=1e6)
    for step in (0, 1, 0):
        run.submit(batch_of(step))
        run.finish_step()
        run.flush()
    assert reader_of(store).parquet_files() is None
    run.close()


def test_unknown_files_are_ignored_with_a_warning(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    write(store, range(2))
    store.write("index/000000000/notes.txt", [b"hello"])
    store.write("index/readme", [b"hello"])
    with caplog.at_level(logging.WARNING, "smdebug.storage"):
        reader = reader_of(store)
        reader.refresh()
    assert values(reader) == [0.0, 1.0]
    assert sum("notes.txt" in record.getMessage() for record in caplog.records) == 1
    assert sum("readme" in record.getMessage() for record in caplog.records) == 1


def test_collections(store: Store) -> None:
    store.write("collections/000000000/worker_0_collections.json", [b'{"collections": {}}'])
    store.write("collections/000000000/other.txt", [b"not one"])
    assert reader_of(store).collections() == {"worker_0": {"collections": {}}}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"5", b"\xff", b"[" * 100_000])
def test_damaged_collections(store: Store, data: bytes) -> None:
    key = "collections/000000000/worker_0_collections.json"
    store.write(key, [data])
    with pytest.raises(IndexReaderException, match=key):
        reader_of(store).collections()


# ---- index files that lead astray


def craft(store: Store, event_file: str | None, **fields: Any) -> RunReader:
    """A run with an intact index that refers to wrong locations."""
    row = IndexRow(0, ModeKeys.TRAIN, 0, "x", 1.0, 0, dtype="float64", shape=(3,))
    row.event_file, row.offset, row.length, row.checksum = event_file, 0, 100, 1
    for name, value in fields.items():
        setattr(row, name, value)
    table = newest_rows(rows_to_table([row], "worker_0", 0))
    store.write(index_key(0, 0, "worker_0"), [encode_index(table)])
    return reader_of(store)


@pytest.mark.parametrize(
    "event_file", ["../x", "/etc/passwd", "events/../../x", "", "a//b", "events/\0", "C:\\x"]
)
@pytest.mark.parametrize("offset", [0, -5])
def test_event_files_outside_the_run(store: Store, event_file: str, offset: int) -> None:
    reader = craft(store, event_file, offset=offset)
    with pytest.raises(SMDebugValueError, match="key"):
        values(reader)


def test_v1_event_files_outside_the_run(store: Store) -> None:
    text = (
        '{"meta": {"mode": "TRAIN", "mode_step": 0, '
        '"event_file_name": "../000000000000_worker_0.tfevents"}, '
        '"tensor_payload": [{"tensorname": "x", "start_idx": 0, "length": 100}]}'
    )
    store.write("index/000000000/000000000000_worker_0.json", [text.encode()])
    with pytest.raises(SMDebugValueError, match="key"):
        values(reader_of(store))


def test_event_files_that_are_links(tmp_path: Path) -> None:
    other = LocalStore(tmp_path / "other")
    write(other, range(1))
    (key,) = other.list("events/")
    run = tmp_path / "run"
    (run / "events" / "000000000000").mkdir(parents=True)
    (run / key).symlink_to(tmp_path / "other" / key)
    store = LocalStore(run)
    for index in other.list("index/"):
        store.write(index, [other.read(index)])
    with pytest.raises(SMDebugValueError, match="symbolic link"):
        values(reader_of(store))


def test_an_event_file_that_is_missing(store: Store) -> None:
    write(store, range(3))
    for key in list(store.list("events/")):
        store.delete(key)
    with pytest.raises(KeyError):
        values(reader_of(store))


@pytest.mark.parametrize(
    "fields",
    [
        {"offset": 2**62},
        {"length": 2**62},
        {"offset": 2**62, "length": 2**62},
        {"length": 0},
        {"length": 5},
        {"length": -1},
        {"offset": -10},
        {"offset": 5},
    ],
    ids=str,
)
def test_locations_without_a_record_are_rejected(store: Store, fields: dict[str, int]) -> None:
    key = event_key(0, 0, "worker_0")
    write(store, range(1))
    (location,) = locations(reader_of(store))
    for index in list(store.list("index/")):
        store.delete(index)
    reader = craft(
        store, key, **{"length": location.length, "checksum": location.checksum, **fields}
    )
    with pytest.raises(DataCorrupted, match=key):
        values(reader)


def test_the_event_files_of_two_runs_swapped(store: Store) -> None:
    """Both files are intact and of the same length; the index detects the swap."""
    other = MemoryStore()
    write(store, range(2))
    write(other, range(2), value=50.0)
    (key,) = store.list("events/")
    assert list(other.list("events/")) == [key]
    assert len(other.read(key)) == len(store.read(key))
    store.write(key, [bytes(other.read(key))])
    with pytest.raises(DataCorrupted, match="checksum"):
        values(reader_of(store))


@pytest.mark.parametrize("size", [3, 1 << 18], ids=["small", "large"])
@pytest.mark.parametrize("change", [{"tensor": "y"}, {"step": 1}, {"checksum": 5}, {"length": 40}])
def test_record_must_match_its_row(store: Store, size: int, change: dict[str, Any]) -> None:
    """Also when the reader has verified the same record before."""
    with RunWriter(store) as run:
        run.submit(batch_of(0, size=size))
    reader = reader_of(store)
    (location,) = locations(reader)
    reader.read_values([location])
    with pytest.raises(DataCorrupted):
        reader.read_values([location._replace(**change)])


def test_every_byte_of_an_event_file_counts(store: Store) -> None:
    with RunWriter(store) as run:
        run.submit(batch_of(0, 1.0, "a"))
        run.submit(batch_of(1, 2.0, "b"))
    (key,) = store.list("events/")
    data = bytearray(store.read(key))
    for location in range(len(data)):
        data[location] ^= 1 << location % 8
        store.write(key, [data])
        data[location] ^= 1 << location % 8
        reader = reader_of(store)
        with pytest.raises(DataCorrupted) as caught:
            reader.read_values([*locations(reader, "a"), *locations(reader, "b")])
        assert caught.value.key == key
        assert caught.value.tensor in ("a", "b")
        assert caught.value.offset is not None
        assert caught.value.offset <= location


def test_damage_in_large_records_is_found(store: Store) -> None:
    """Whatever the checksum, whether one is read alone or several side by side."""
    with RunWriter(store) as run:
        run.submit(batch_of(0, 1.0, "a", 1 << 18))
        run.submit(batch_of(1, 2.0, "b", 1 << 18))
    (key,) = store.list("events/")
    data = bytearray(store.read(key))
    (first,) = locations(reader_of(store), "a")
    for location in [0, 8, 12, 13, 40, 300, first.length // 2, first.length - 5, first.length - 1]:
        data[location] ^= 1 << location % 8
        store.write(key, [data])
        data[location] ^= 1 << location % 8
        reader = reader_of(store)
        for asked in ("a", "ab", "ba"):
            wanted = [found for name in asked for found in locations(reader, name)]
            with pytest.raises(DataCorrupted, match="tensor a"):
                reader.read_values(wanted)
        assert reader.read_values(locations(reader, "b"))[0][0] == 2.0


def test_large_event_files_of_two_runs_swapped(store: Store) -> None:
    other = MemoryStore()
    for where, value in ((store, 1.0), (other, 2.0)):
        with RunWriter(where) as run:
            run.submit(batch_of(0, value, size=1 << 18))
    (key,) = store.list("events/")
    store.write(key, [bytes(other.read(key))])
    with pytest.raises(DataCorrupted, match="checksum"):
        values(reader_of(store))


@pytest.mark.parametrize("size", [3, 1 << 18], ids=["small", "large"])
def test_values_are_read_only(store: Store, size: int) -> None:
    with RunWriter(store) as run:
        run.submit(batch_of(0, size=size))
    reader = reader_of(store)
    for value in reader.read_values(locations(reader)):
        assert not value.flags.writeable


def test_a_damaged_index_file_is_named(store: Store) -> None:
    write(store, range(3))
    (key,) = store.list("index/")
    data = bytearray(store.read(key))
    data[len(data) // 2] ^= 1
    store.write(key, [data])
    with pytest.raises(IndexReaderException, match=key):
        reader_of(store).table()


def test_a_refresh_that_failed_can_be_tried_again(store: Store) -> None:
    """Nothing is counted twice, whatever was read before the failure."""
    write(store, range(2), format="v1", end=False)
    write(store, range(2, 4))
    (key,) = (key for key in store.list("index/") if key.endswith(".parquet"))
    data = bytes(store.read(key))
    store.write(key, [data[:-1]])
    reader = RunReader(store)
    for _ in range(3):
        with pytest.raises(IndexReaderException, match=key):
            reader.refresh()
    store.write(key, [data])
    assert reader.refresh() is True
    assert sorted(reader.steps()["worker_0"].step.tolist()) == [0, 1, 2, 3]
    assert values(reader) == [0.0, 1.0, 2.0, 3.0]


# ---- compaction meanwhile


def unclosed(store: Store, steps: range) -> RunWriter:
    run = RunWriter(store, flush_seconds=1e6)
    for step in steps:
        run.submit(batch_of(step, step))
        run.finish_step()
        run.flush()
    return run


def test_compaction_between_refresh_and_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever can be fetched late is: small pieces, no file decoded whole.
    monkeypatch.setattr(index_bytes, "_TAIL_BYTES", 100)
    monkeypatch.setattr(index_file, "_SMALL", 0)
    run = unclosed(store, range(5))
    reader = reader_of(store)
    run.close()
    assert values(reader) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert reader.names_at(3) == {"x"}
    assert reader.table(["step", "time"]).num_rows == 5
    reader.refresh()
    assert values(reader) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len(reader.segments) == 1


def test_compaction_while_files_are_opened() -> None:
    store = RemoteStore()
    run = unclosed(store, range(5))
    first = True

    def compact(key: str) -> None:
        nonlocal first
        if first and key.startswith("index/"):
            first = False
            store.before_read = lambda key: None
            run.close()

    store.before_read = compact
    reader = reader_of(store)
    assert values(reader) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert sorted(reader.steps()["worker_0"].step.tolist()) == [0, 1, 2, 3, 4]


def test_files_that_always_vanish_are_an_error() -> None:
    store = RemoteStore()
    write(store, range(2))

    def vanish(key: str) -> None:
        raise KeyError(key)

    store.before_read = vanish
    with pytest.raises(IndexReaderException, match="vanish"):
        reader_of(store)


# ---- far away


def test_neighboring_records_are_fetched_in_one_request() -> None:
    store = RemoteStore()
    write(store, range(50))
    reader = reader_of(store)
    found = locations(reader)
    store.asked.clear()
    assert [float(value[0]) for value in reader.read_values(found)] == list(range(50))
    assert len(store.asked) == 1


def test_values_are_returned_in_the_requested_order(store: Store) -> None:
    write(store, range(10))
    write(store, range(10, 20))
    reader = reader_of(store)
    found = locations(reader)[::-1]
    found = [*found[5:], *found[:5], found[0], found[0]]
    expected = [float(location.step) for location in found]
    assert [float(value[0]) for value in reader.read_values(found)] == expected
    assert reader.read_values([]) == []


def test_large_remote_index_is_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_bytes, "_TAIL_BYTES", 1 << 12)
    monkeypatch.setattr(index_file, "_SMALL", 100)
    store = RemoteStore()
    chance = np.random.default_rng(0)
    with RunWriter(store) as run:
        for step in range(300):
            entries = [
                Entry(f"t{n:02}", np.float64(step), dict(zip(REDUCTION_NAMES, noise, strict=True)))
                for n, noise in enumerate(chance.random((50, len(REDUCTION_NAMES))))
            ]
            run.submit(StepBatch(step, ModeKeys.TRAIN, step, entries, 1.5))
    (key,) = store.list("index/")
    whole = len(store.read(key))
    store.asked.clear()
    reader = reader_of(store)
    table = reader.rows("t07", ["step", "value"])
    assert table["value"].to_pylist() == list(range(300))
    asked = [(start, length) for name, start, length in store.asked if name == key]
    fetched = sum(min(length or abs(start), whole) for start, length in asked)
    assert fetched < whole / 4
    assert reader.table(["mean", "l2"]).num_rows == 15_000


# ---- while another process writes


def _write_steps(folder: str, format: str, count: int) -> None:
    with RunWriter(LocalStore(folder), format=format, flush_seconds=0) as run:
        for step in range(count):
            for name in ("a", "b", "c"):
                run.submit(batch_of(step, step, name))


@pytest.mark.parametrize("format", FORMATS)
def test_reading_while_another_process_writes(tmp_path: Path, format: str) -> None:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_write_steps, args=(str(tmp_path), format, 100))
    process.start()
    reader = RunReader(LocalStore(tmp_path))
    try:
        for _ in _polls(reader, process):
            tables = {name: reader.rows(name, VALUE_COLUMNS) for name in "abc"}
            steps = {name: table["step"].to_pylist() for name, table in tables.items()}
            assert steps["a"] == steps["b"] == steps["c"]
            for name, table in tables.items():
                found = [location for location in record_locations(table, name) if location]
                read = reader.read_values(found[-3:])
                assert [value[0] for value in read] == [location.step for location in found[-3:]]
    finally:
        process.join(60)
    assert process.exitcode == 0
    assert reader.rows("a", ["step"])["step"].to_pylist() == list(range(100))


def _polls(reader: RunReader, writer: SpawnProcess) -> Iterator[None]:
    finished = False
    while not finished:
        # A writer that crashed without an end marker would be waited for.
        finished = reader.finished() or not writer.is_alive()
        reader.refresh()
        yield


# ---- steps


def test_one_tensor_in_two_modes(store: Store) -> None:
    array: Array = np.arange(3.0)
    with RunWriter(store) as run:
        run.submit(StepBatch(0, ModeKeys.TRAIN, 0, [Entry("x", array)]))
        run.submit(StepBatch(1, ModeKeys.EVAL, 0, [Entry("x", array), Entry("y", array)]))
    names = reader_of(store).names()
    assert names == {"x": 0b110, "y": 0b100}
