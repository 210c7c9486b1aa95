"""The background writer: what it promises to the thread that trains."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from smdebug.exceptions import (
    SMDebugRuntimeError,
    SMDebugTypeError,
    SMDebugValueError,
    WriteFailed,
)
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, PendingBatch, StepBatch
from smdebug.storage.format.keys import event_key, parse_index_key
from smdebug.storage.raw_tensors import VALUE_COLUMNS, places_of
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.v2 import compaction
from smdebug.storage.writer import thread as writer
from smdebug.storage.writer.flush_interval import flush_interval
from smdebug.storage.writer.thread import RunWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from smdebug.storage.stores.base import Buffer, Store

FORMATS = ["v1", "v2"]
# Long enough for a busy machine; only a hang ever takes it.
_PATIENCE = 5


def batch_of(step: int, *entries: Entry, mode: ModeKeys = ModeKeys.TRAIN) -> StepBatch:
    return StepBatch(step, mode, step, list(entries) or [make_entry(step)], 1.5)


def make_entry(value: float, name: str = "x", size: int = 3) -> Entry:
    return Entry(name, np.full(size, value))


def steps_in(store: Store) -> list[int]:
    reader = RunReader(store)
    reader.refresh()
    return sorted({int(step) for arrays in reader.steps().values() for step in arrays.step})


def values_in(store: Store, tensor: str = "x") -> dict[int, float]:
    """The first element of a tensor at every step."""
    reader = RunReader(store)
    reader.refresh()
    table = reader.rows(tensor, VALUE_COLUMNS)
    places = places_of(table, tensor)
    read = iter(reader.read_values([place for place in places if place]))
    return {
        row["step"]: row["value"] if place is None else float(next(read).reshape(-1)[0])
        for row, place in zip(table.to_pylist(), places, strict=True)
    }


def outcome(call: Callable[[], object]) -> object:
    """What a call returns or raises; a call that does not come back fails the test."""
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    assert not thread.is_alive(), "the call hangs"
    return answers[0]


def until_waiting(run: RunWriter, count: int) -> None:
    """Returns when so many threads wait for the writer."""
    deadline = time.monotonic() + _PATIENCE
    while len(run._changed._waiters) < count:  # type: ignore[attr-defined]
        assert time.monotonic() < deadline


class CountingStore(MemoryStore):
    """Counts the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        self.lists = self.reads = self.deletes = 0

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        self.writes.append(key)
        super().write(key, chunks)

    def list(self, prefix: str = "", after: str = "") -> Any:
        self.lists += 1
        return super().list(prefix, after)

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        self.reads += 1
        return super().read(key, start, length)

    def delete(self, key: str) -> None:
        self.deletes += 1
        super().delete(key)


class BlockingStore(MemoryStore):
    """Writes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.go = threading.Event()

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        self.entered.set()
        assert self.go.wait(_PATIENCE * 3)
        super().write(key, chunks)


class FailingStore(MemoryStore):
    """Fails to write keys that contain a text."""

    def __init__(self, text: str = "", error: BaseException | None = None) -> None:
        super().__init__()
        self.text = text
        self.error = error or OSError(28, "No space left on device")

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        if self.text in key:
            raise self.error
        super().write(key, chunks)


class Panic(BaseException):
    """What a library in another language raises when it dies."""


# ---- steps


@pytest.mark.parametrize("format", FORMATS)
def test_everything_is_there_after_close(format: str) -> None:
    store = MemoryStore()
    with RunWriter(store, format=format) as run:
        for step in range(10):
            run.submit(batch_of(step))
    assert values_in(store) == {step: float(step) for step in range(10)}
    assert "training_job_end.ts" in set(store.list())
    assert run.stats.steps == 10
    assert run.stats.bytes > 0


@pytest.mark.parametrize("format", FORMATS)
def test_close_without_the_end_marker(format: str) -> None:
    store = MemoryStore()
    run = RunWriter(store, format=format)
    run.submit(batch_of(0))
    run.close(end=False)
    assert "training_job_end.ts" not in set(store.list())
    assert steps_in(store) == [0]


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_without_steps(format: str) -> None:
    store = MemoryStore()
    with RunWriter(store, format=format):
        pass
    assert list(store.list()) == ["training_job_end.ts"]
    assert steps_in(store) == []


@pytest.mark.parametrize("format", FORMATS)
def test_flush_publishes_finished_steps_only(format: str) -> None:
    store = MemoryStore()
    run = RunWriter(store, format=format, flush_seconds=1e6)
    run.submit(batch_of(0, make_entry(1.0, "a")))
    run.submit(batch_of(0, make_entry(2.0, "b")))
    run.flush()
    assert steps_in(store) == []
    run.submit(batch_of(1))
    run.flush()
    assert steps_in(store) == [0]
    reader = RunReader(store)
    reader.refresh()
    assert reader.names_at(0) == {"a", "b"}
    run.finish_step()
    run.flush()
    assert steps_in(store) == [0, 1]
    run.close()


@pytest.mark.parametrize("format", FORMATS)
def test_finish_step_without_a_step(format: str) -> None:
    store = MemoryStore()
    with RunWriter(store, format=format) as run:
        run.finish_step()
        run.flush()
        run.finish_step()
    assert steps_in(store) == []


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("place", ["memory", "local"])
def test_a_step_in_several_batches_is_never_seen_half(
    format: str, place: str, tmp_path: Path
) -> None:
    store: Store = MemoryStore() if place == "memory" else LocalStore(tmp_path)
    names = [f"t{number}" for number in range(5)]
    done = threading.Event()
    halves: list[tuple[int, set[str]]] = []
    seen: set[int] = set()

    def poll() -> None:
        reader = RunReader(store)
        last = False
        while not last:
            last = done.is_set()
            reader.refresh()
            for arrays in reader.steps().values():
                for step in set(arrays.step.tolist()) - seen:
                    seen.add(step)
                    if reader.names_at(step) != set(names):
                        halves.append((step, reader.names_at(step)))

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        with RunWriter(store, format=format, flush_seconds=0) as run:
            for step in range(40):
                for name in names:
                    run.submit(batch_of(step, make_entry(1.0, name), Entry(name, np.float32(1))))
                if step % 3 == 0:
                    run.flush()
    finally:
        done.set()
        thread.join(60)
    assert halves == []
    assert seen == set(range(40))


@pytest.mark.parametrize("format", FORMATS)
def test_a_name_saved_twice_in_a_step_keeps_the_later(format: str) -> None:
    store = MemoryStore()
    with RunWriter(store, format=format) as run:
        run.submit(batch_of(0, make_entry(1.0, "a"), make_entry(1.0), make_entry(2.0)))
        run.submit(batch_of(0, make_entry(3.0)))
    assert values_in(store) == {0: 3.0}


def test_a_step_taken_up_again_keeps_the_later() -> None:
    store = MemoryStore()
    with RunWriter(store) as run:
        run.submit(batch_of(0, make_entry(1.0, "a"), make_entry(1.0)))
        run.submit(batch_of(1))
        run.submit(batch_of(0, make_entry(3.0)))
    assert values_in(store) == {0: 3.0, 1: 1.0}
    assert values_in(store, "a") == {0: 1.0}


def test_steps_may_come_in_any_order() -> None:
    store = MemoryStore()
    with RunWriter(store) as run:
        for step in (5000, 3, 999, 1000, 0):
            run.submit(batch_of(step))
    assert values_in(store) == {step: float(step) for step in (0, 3, 999, 1000, 5000)}


def test_batches_without_entries() -> None:
    store = MemoryStore()
    with RunWriter(store) as run:
        run.submit(StepBatch(0, ModeKeys.TRAIN, 0, []))
        run.submit(batch_of(1))
        run.submit(StepBatch(2, ModeKeys.TRAIN, 2, []))
    assert values_in(store) == {1: 1.0}


@pytest.mark.parametrize("format", FORMATS)
def test_modes_and_times(format: str) -> None:
    store = MemoryStore()
    with RunWriter(store, format=format) as run:
        for step, mode in enumerate(ModeKeys):
            run.submit(StepBatch(step, mode, step + 10, [make_entry(0.0)], time=100.0 + step))
    reader = RunReader(store)
    reader.refresh()
    rows = reader.rows("x", ["mode", "mode_step"]).to_pylist()
    assert [(row["mode"], row["mode_step"]) for row in rows] == [
        ("TRAIN", 10), ("EVAL", 11), ("PREDICT", 12), ("GLOBAL", 13),
    ]  # fmt: skip


# ---- collections


def test_collections_are_replaced() -> None:
    store = MemoryStore()
    with RunWriter(store, "a/b") as run:
        run.write_collections('{"collections": {}}')
        run.write_collections('{"collections": {"x": 1}}')
    reader = RunReader(store)
    assert reader.collections() == {"a/b": {"collections": {"x": 1}, "_meta": {}}}


# ---- several workers, odd names


WORKERS = ["worker_0", "a/b", "a:b", "a__b", "a b", "100%", "ü", "..", "x.tmp"]
WORKERS += ["/job:worker/replica:0/task:1/device:GPU:3"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("place", ["memory", "local"])
def test_workers_side_by_side(format: str, place: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if place == "memory" else LocalStore(tmp_path)
    writers = [RunWriter(store, worker, format=format) for worker in WORKERS]
    for step in range(3):
        for number, run in enumerate(writers):
            run.submit(batch_of(step, make_entry(number)))
    for run in writers:
        run.write_collections("{}")
        run.close()
    reader = RunReader(store)
    reader.refresh()
    table = reader.rows("x", [*VALUE_COLUMNS, "worker"])
    values = reader.read_values([place for place in places_of(table, "x") if place])
    found = zip(table["worker"].to_pylist(), [value[0] for value in values], strict=True)
    assert sorted(found) == sorted(
        (worker, number) for number, worker in enumerate(WORKERS) for _ in range(3)
    )
    assert set(reader.collections()) == set(WORKERS)


# ---- resuming


@pytest.mark.parametrize("place", ["memory", "local"])
def test_a_resumed_run_overwrites_nothing(place: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if place == "memory" else LocalStore(tmp_path)
    before: dict[str, bytes] = {}
    for attempt in range(3):
        run = RunWriter(store, flush_seconds=1e6)
        run.submit(batch_of(0, make_entry(attempt), make_entry(attempt, f"only{attempt}")))
        run.finish_step()
        run.flush()
        for key, data in before.items():
            assert bytes(store.read(key)) == data
        before = {key: bytes(store.read(key)) for key in store.list()}
        assert len([key for key in before if parse_index_key(key)]) == attempt + 1
    assert values_in(store) == {0: 2.0}
    assert values_in(store, "only0") == {0: 0.0}


def test_the_highest_seq_wins_after_compaction_too() -> None:
    store = MemoryStore()
    for attempt in range(4):
        with RunWriter(store) as run:
            for step in range(3):
                run.submit(batch_of(step, make_entry(attempt * 10 + step)))
                run.flush()
        assert values_in(store) == {step: attempt * 10.0 + step for step in range(3)}
        assert len([key for key in store.list("index/")]) == 1


@pytest.mark.parametrize("seq", [0, 1, 7])
def test_an_event_file_without_index_is_not_overwritten(seq: int) -> None:
    """What a job leaves that was killed between its two files."""
    store = MemoryStore()
    orphan = event_key(0, seq, "worker_0")
    store.write(orphan, [b"orphan"])
    with RunWriter(store) as run:
        run.submit(batch_of(0))
    assert bytes(store.read(orphan)) == b"orphan"
    assert values_in(store) == {0: 0.0}


def test_another_workers_numbers_do_not_count() -> None:
    store = MemoryStore()
    with RunWriter(store, "b") as run:
        for step in range(5):
            run.submit(batch_of(step))
            run.flush()
    with RunWriter(store, "a") as run:
        run.submit(batch_of(0))
    names = [parse_index_key(key) for key in store.list("index/")]
    assert [(name.worker, name.seq) for name in names if name and name.worker == "a"] == [("a", 0)]


# ---- compaction


def published(store: Store, steps: Iterable[int], **options: Any) -> RunWriter:
    run = RunWriter(store, flush_seconds=1e6, **options)
    for step in steps:
        run.submit(batch_of(step))
        run.finish_step()
        run.flush()
    return run


def test_close_joins_the_small_index_files() -> None:
    store = MemoryStore()
    run = published(store, range(2500, 2520))
    before = list(store.list("index/"))
    assert len(before) == 20
    run.close()
    (after,) = store.list("index/")
    assert after not in before
    assert values_in(store) == {step: float(step) for step in range(2500, 2520)}


def test_a_reader_that_meets_old_and_new_takes_each_row_once() -> None:
    class Keeping(MemoryStore):
        def delete(self, key: str) -> None:
            raise OSError("not now")

    store = Keeping()
    run = published(store, range(5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer.logger, "warning", lambda *args, **kwargs: None)
        run.close()
    assert len(list(store.list("index/"))) == 6
    assert values_in(store) == {step: float(step) for step in range(5)}
    reader = RunReader(store)
    reader.refresh()
    assert reader.rows("x", ["step"])["step"].to_pylist() == [0, 1, 2, 3, 4]
    assert reader.table(["step"]).num_rows == 5
    assert reader.parquet_files() is None


def test_a_compaction_that_fails_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    run = published(store, range(3))
    damaged = next(iter(store.list("index/")))
    data = bytes(store.read(damaged))
    store.write(damaged, [data[:-1] + b"X"])
    with caplog.at_level(logging.WARNING, "smdebug.storage"):
        run.close()
    assert "stays as it is" in caplog.text
    store.write(damaged, [data])
    assert steps_in(store) == [0, 1, 2]
    assert "training_job_end.ts" in set(store.list())


def test_large_index_files_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "ROWS_PER_FILE", 20)
    store = MemoryStore()
    run = RunWriter(store, flush_seconds=1e6)
    for step, count in enumerate([10, 3, 30, 4, 9, 9, 9]):
        run.submit(batch_of(step, *(make_entry(step, f"t{n}") for n in range(count))))
        run.finish_step()
        run.flush()
    large = [
        key for key in store.list("index/") if "000000000000-" in key or "000000000002-" in key
    ]
    before = {key: bytes(store.read(key)) for key in large}
    run.close()
    assert {key: bytes(store.read(key)) for key in large} == before
    assert len(list(store.list("index/"))) == 4
    reader = RunReader(store)
    reader.refresh()
    assert reader.table(["step"]).num_rows == 10 + 3 + 30 + 4 + 27
    assert values_in(store, "t8") == {0: 0.0, 2: 2.0, 4: 4.0, 5: 5.0, 6: 6.0}


def test_compaction_keeps_to_its_own_worker() -> None:
    store = MemoryStore()
    first, second = published(store, range(3)), published(store, range(3), worker="worker_1")
    first.close()
    names = [parse_index_key(key) for key in store.list("index/")]
    workers = [name.worker for name in names if name]
    assert sorted(workers) == ["worker_0", "worker_1", "worker_1", "worker_1"]
    second.close()
    assert len(list(store.list("index/"))) == 2


# ---- how many objects, and when


@pytest.mark.parametrize(
    ("age", "remote", "flush_seconds", "expected"),
    [
        (0, False, None, 1),
        (0, True, None, 10),
        (500, False, None, 1),
        (5000, False, None, 10),
        (5000, True, None, 10),
        (10**9, False, None, 30),
        (10**9, True, None, 60),
        (0, False, 0, 0),
        (0, True, 0.5, 0.5),
        (5000, False, 2, 2),
        (0, False, 100, 100),
        (10**9, False, 100, 100),
    ],
)
def test_flush_interval(
    age: float, remote: bool, flush_seconds: float | None, expected: float
) -> None:
    assert flush_interval(age, remote, flush_seconds) == expected


def test_the_number_of_objects_does_not_grow_with_the_steps() -> None:
    store = CountingStore()
    with RunWriter(store, flush_seconds=1e6) as run:
        for step in range(2000):
            run.submit(batch_of(step, Entry("loss", np.float64(step)), make_entry(step)))
    assert len(store.writes) == 3
    assert store.lists <= 4
    assert run.stats.segments == 1
    assert run.stats.steps == 2000


def test_scalars_need_no_event_file() -> None:
    store = CountingStore()
    with RunWriter(store) as run:
        run.submit(batch_of(0, Entry("loss", np.float32(0.5))))
    assert [key.split("/")[0] for key in store.writes] == ["index", "training_job_end.ts"]


def test_a_full_segment_is_published_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SEGMENT_BYTES", 10_000)
    store = CountingStore()
    run = RunWriter(store, flush_seconds=1e6)
    for step in range(10):
        run.submit(batch_of(step, make_entry(step, size=1000)))
    run.write_collections("{}")
    outcome(run.flush)
    events = [key for key in store.writes if key.startswith("events/")]
    assert len(events) >= 4
    run.close()
    assert values_in(store) == {step: float(step) for step in range(10)}


def test_an_old_step_is_published_without_being_asked() -> None:
    store = BlockingStore()
    store.go.set()
    run = RunWriter(store, flush_seconds=0)
    run.submit(batch_of(0))
    run.finish_step()
    assert store.entered.wait(_PATIENCE)
    run.close()


@pytest.mark.parametrize("seconds", [1e6, 1e10, math.inf])
def test_a_long_time_to_wait(seconds: float) -> None:
    store = MemoryStore()
    run = RunWriter(store, flush_seconds=seconds)
    run.submit(batch_of(0))
    run.finish_step()
    assert outcome(run.flush) is None
    assert steps_in(store) == [0]
    assert outcome(run.close) is None


def test_one_event_file_before_its_index() -> None:
    store = CountingStore()
    with RunWriter(store) as run:
        run.submit(batch_of(0))
    assert [key.split("/")[0] for key in store.writes] == [
        "events", "index", "training_job_end.ts",
    ]  # fmt: skip


# ---- the queue


@pytest.mark.parametrize("format", FORMATS)
def test_a_full_queue_makes_the_producer_wait(format: str) -> None:
    store = BlockingStore()
    run = RunWriter(store, format=format, queue_bytes=20_000, flush_seconds=0)
    run.submit(batch_of(0, make_entry(0, size=1000)))
    run.finish_step()
    assert store.entered.wait(_PATIENCE)
    submitted = threading.Event()

    def produce() -> None:
        for step in range(1, 5):
            run.submit(batch_of(step, make_entry(step, size=1000)))
        submitted.set()

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    until_waiting(run, 1)
    assert not submitted.is_set()
    store.go.set()
    assert submitted.wait(_PATIENCE)
    run.close()
    assert run.stats.seconds_waited > 0
    assert values_in(store) == {step: float(step) for step in range(5)}


def test_a_queue_with_room_waits_for_nobody() -> None:
    store = MemoryStore()
    with RunWriter(store) as run:
        for step in range(50):
            run.submit(batch_of(step))
    assert run.stats.seconds_waited == 0.0


@pytest.mark.parametrize("queue_bytes", [0, 1])
def test_one_batch_may_exceed_the_queue_alone(queue_bytes: int) -> None:
    store = MemoryStore()
    run = RunWriter(store, queue_bytes=queue_bytes)
    for step in range(5):
        batch = batch_of(step, make_entry(step, size=10_000))
        assert outcome(partial(run.submit, batch)) is None
    run.close()
    assert steps_in(store) == [0, 1, 2, 3, 4]


def test_a_producer_that_waits_while_the_run_is_closed_is_told() -> None:
    """Its batch cannot be written any more; it must not vanish without a word."""
    store = BlockingStore()
    # Room for two: the one that is being published counts until it is.
    run = RunWriter(store, queue_bytes=2 * batch_of(0).nbytes, flush_seconds=0)
    run.submit(batch_of(0))
    run.finish_step()
    assert store.entered.wait(_PATIENCE)
    run.submit(batch_of(1))
    answers: list[object] = []

    def produce() -> None:
        try:
            run.submit(batch_of(2))
            answers.append(None)
        except SMDebugRuntimeError as error:
            answers.append(error)

    producer = threading.Thread(target=produce, daemon=True)
    producer.start()
    until_waiting(run, 1)
    closer = threading.Thread(target=run.close, daemon=True)
    closer.start()
    until_waiting(run, 2)
    store.go.set()
    producer.join(_PATIENCE)
    closer.join(_PATIENCE)
    assert not producer.is_alive()
    assert not closer.is_alive()
    assert 2 in steps_in(store) or isinstance(answers[0], SMDebugRuntimeError)


# ---- failures


def failed(text: str = "", format: str = "v2") -> tuple[FailingStore, RunWriter]:
    """A writer whose store has already refused something."""
    store = FailingStore(text)
    run = RunWriter(store, format=format, flush_seconds=1e6)
    run.submit(batch_of(0))
    run.submit(batch_of(1))
    error = outcome(run.flush)
    assert isinstance(error, WriteFailed)
    return store, run


CALLS: dict[str, Callable[[RunWriter], object]] = {
    "submit": lambda run: run.submit(batch_of(2)),
    "flush": lambda run: run.flush(),
    "close": lambda run: run.close(),
    "finish_step": lambda run: run.finish_step(),
    "write_collections": lambda run: run.write_collections("{}"),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("text", ["events/", "index/"])
def test_a_failure_is_met_by_the_next_call(format: str, call: str, text: str) -> None:
    _, run = failed(text, format)
    error = outcome(lambda: CALLS[call](run))
    assert isinstance(error, WriteFailed)
    assert isinstance(error.__cause__, OSError)
    assert "No space left" in str(error)
    assert set(error.lost_steps) >= {0, 1}


@pytest.mark.parametrize("format", FORMATS)
def test_close_reports_a_failure_and_ends_the_thread(format: str) -> None:
    _, run = failed("events/", format)
    assert isinstance(outcome(run.close), WriteFailed)
    assert outcome(run.close) is None
    assert run._thread is not None
    assert not run._thread.is_alive()


def test_a_failure_that_only_close_meets() -> None:
    run = RunWriter(FailingStore("index/"))
    run.submit(batch_of(0))
    error = outcome(run.close)
    assert isinstance(error, WriteFailed)
    assert error.lost_steps == (0,)


def test_only_what_was_not_published_is_lost() -> None:
    store = FailingStore("000000000002")
    run = published(store, [0, 1])
    run.submit(batch_of(2))
    run.submit(batch_of(3))
    error = outcome(run.close)
    assert isinstance(error, WriteFailed)
    assert error.lost_steps == (2, 3)
    assert steps_in(store) == [0, 1]
    assert "training_job_end.ts" not in set(store.list())


def test_the_end_marker_may_fail() -> None:
    run = RunWriter(FailingStore("training_job_end"))
    run.submit(batch_of(0))
    error = outcome(run.close)
    assert isinstance(error, WriteFailed)
    assert error.lost_steps == ()


def test_collections_may_fail() -> None:
    run = RunWriter(FailingStore("collections/"))
    run.write_collections("{}")
    assert isinstance(outcome(run.flush), WriteFailed)
    assert isinstance(outcome(run.close), WriteFailed)


def test_a_tensor_that_cannot_be_saved_is_a_failure_that_says_why() -> None:
    # Where the mistake is made, not later on the thread, where it would take others with it.
    with pytest.raises(SMDebugTypeError, match="datetime64"):
        Entry("dates", np.zeros(3, "M8[s]"))


@pytest.mark.parametrize("reductions", [{"foo": 1.0}, {"l1_norm": 1.0}, {"l2": 1.0, "L2": 1.0}])
def test_reductions_nobody_knows_are_refused(reductions: dict[str, float]) -> None:
    with pytest.raises(SMDebugValueError, match="unknown reductions"):
        Entry("x", reductions=reductions)


@pytest.mark.parametrize(("step", "mode_step"), [(10**12, 0), (1.5, 0), (-1, 0), (0, -1), ("1", 0)])
def test_steps_that_are_none_are_refused(step: Any, mode_step: Any) -> None:
    with pytest.raises(SMDebugValueError, match=r"step must be an integer from 0"):
        StepBatch(step, ModeKeys.TRAIN, mode_step, [])


def test_a_forked_process_does_not_write() -> None:
    store = MemoryStore()
    run = RunWriter(store)
    run.submit(batch_of(0))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            run.submit(batch_of(1))
        except SMDebugRuntimeError as error:
            os.write(writing, str(error).encode())
        run.close()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert "forked process" in pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    run.close()
    assert stored_steps(store) == [0]


def test_a_large_tensor_is_written_at_the_exit_of_the_interpreter(tmp_path: Path) -> None:
    program = f"""
import atexit
import numpy as np
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, PendingBatch, StepBatch
from smdebug.storage.stores.base import open_store
from smdebug.storage.writer.thread import RunWriter

writer = RunWriter(open_store({str(tmp_path)!r}))
writer.submit(StepBatch(0, ModeKeys.TRAIN, 0, [Entry("x", np.ones(1 << 20))]))
atexit.register(writer.close)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert stored_steps(LocalStore(tmp_path)) == [0]


def test_a_second_close_waits_for_the_first() -> None:
    store = BlockingStore()
    run = RunWriter(store, flush_seconds=0)
    run.submit(batch_of(0))
    closers = [threading.Thread(target=run.close) for _ in range(2)]
    closers[0].start()
    assert store.entered.wait(_PATIENCE)
    closers[1].start()
    assert closers[1].is_alive()
    store.go.set()
    for closer in closers:
        closer.join(_PATIENCE)
        assert not closer.is_alive()
    assert stored_steps(store) == [0]


def stored_steps(store: Store) -> list[int]:
    reader = RunReader(store)
    reader.refresh()
    return sorted({int(step) for each in reader.steps().values() for step in each.step})


def test_a_blocked_producer_is_released_by_a_failure() -> None:
    class Broken(BlockingStore):
        def write(self, key: str, chunks: Iterable[Buffer]) -> None:
            super().write(key, chunks)
            raise OSError("gone")

    store = Broken()
    run = RunWriter(store, queue_bytes=2 * batch_of(0).nbytes, flush_seconds=0)
    run.submit(batch_of(0))
    run.finish_step()
    assert store.entered.wait(_PATIENCE)
    run.submit(batch_of(1))
    answers: list[object] = []
    thread = threading.Thread(
        target=lambda: answers.append(outcome(lambda: run.submit(batch_of(2)))), daemon=True
    )
    thread.start()
    until_waiting(run, 1)
    store.go.set()
    thread.join(_PATIENCE)
    assert isinstance(answers[0], WriteFailed)
    assert isinstance(outcome(run.close), WriteFailed)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("call", ["flush", "close"])
def test_nobody_waits_for_a_thread_that_died(call: str) -> None:
    run = RunWriter(FailingStore(error=Panic("panic")), flush_seconds=1e6)
    run.submit(batch_of(0))
    run.finish_step()
    error = outcome(lambda: CALLS[call](run))
    assert isinstance(error, WriteFailed)
    assert error.lost_steps == (0,)


def script_that_fails(store: Store) -> None:
    with RunWriter(store) as run:
        run.submit(batch_of(0))
        raise ZeroDivisionError


def test_an_exception_in_the_script_still_closes_the_run() -> None:
    store = MemoryStore()
    with pytest.raises(ZeroDivisionError):
        script_that_fails(store)
    assert steps_in(store) == [0]


def test_an_exception_in_the_script_is_not_hidden_by_a_failure() -> None:
    with pytest.raises((ZeroDivisionError, WriteFailed)) as caught:
        script_that_fails(FailingStore())
    error: BaseException | None = caught.value
    chain = []
    while error is not None:
        chain.append(type(error))
        error = error.__cause__ if error.__suppress_context__ else error.__context__
    assert ZeroDivisionError in chain


# ---- after the end, and bad arguments


@pytest.mark.parametrize("call", CALLS)
def test_calls_after_close(call: str) -> None:
    run = RunWriter(MemoryStore())
    run.submit(batch_of(0))
    run.close()
    answer = outcome(lambda: CALLS[call](run))
    if call in ("submit", "write_collections"):
        assert isinstance(answer, SMDebugRuntimeError)
        assert "closed" in str(answer)
    elif call == "close":
        assert answer is None
    else:
        assert answer is None or isinstance(answer, SMDebugRuntimeError)


@pytest.mark.parametrize("format", FORMATS)
def test_a_negative_step_is_refused_at_once(format: str) -> None:
    store = MemoryStore()
    with RunWriter(store, format=format) as run:
        with pytest.raises(SMDebugValueError, match="-1"):
            run.submit(batch_of(-1))
        run.submit(batch_of(0))
    assert steps_in(store) == [0]


def test_an_unknown_format() -> None:
    with pytest.raises(SMDebugValueError, match="v3"):
        RunWriter(MemoryStore(), format="v3")


def test_the_thread_is_started_late_and_is_a_daemon() -> None:
    run = RunWriter(MemoryStore())
    assert run._thread is None
    run.submit(batch_of(0))
    assert run._thread is not None
    assert run._thread.daemon
    run.close()
    assert not run._thread.is_alive()
    assert not [t for t in threading.enumerate() if t.name.startswith("smdebug-checksum")]


# ---- batches that the thread makes


class Memory:
    """Counts what was lent to the writer and came back."""

    def __init__(self) -> None:
        self.needs_release = self.returned = 0

    def pending(self, step: int, make: Callable[[], StepBatch] | None = None) -> PendingBatch:
        self.needs_release += 1
        batch = batch_of(step)
        return PendingBatch(step, batch.nbytes, make or (lambda: batch), self.take_back)

    def take_back(self) -> None:
        self.returned += 1


def test_a_pending_batch_is_made_on_the_thread_and_released_when_published() -> None:
    store, memory = MemoryStore(), Memory()
    makers: list[str] = []

    def make() -> StepBatch:
        makers.append(threading.current_thread().name)
        return batch_of(0)

    run = RunWriter(store, flush_seconds=1e6)
    run.submit(memory.pending(0, make))
    run.finish_step()
    run.submit(memory.pending(1))
    run.finish_step()
    run.flush()
    assert makers == ["smdebug-writer"]
    assert memory.returned == memory.needs_release == 2
    run.submit(memory.pending(2))
    run.close()
    assert memory.returned == 3
    assert steps_in(store) == [0, 1, 2]


def test_memory_comes_back_when_writing_fails() -> None:
    memory = Memory()

    def fail() -> StepBatch:
        raise ArithmeticError("no reduction today")

    run = RunWriter(MemoryStore(), flush_seconds=1e6)
    run.submit(memory.pending(0))
    run.submit(memory.pending(1, fail))
    error = outcome(run.close)
    assert isinstance(error, WriteFailed)
    assert "no reduction today" in str(error)
    assert error.lost_steps == (0, 1)
    assert memory.returned == 2


def test_what_is_published_makes_room_and_nothing_more_is_held() -> None:
    """The bound holds for queue and thread together: memory follows from it."""
    limit = 4 * batch_of(0).nbytes
    most = 0
    store = MemoryStore()
    run = RunWriter(store, queue_bytes=limit, flush_seconds=1e6)
    memory = Memory()
    for step in range(200):
        run.submit(memory.pending(step))
        run.finish_step()
        most = max(most, memory.needs_release - memory.returned)
    run.close()
    assert most <= 4
    assert steps_in(store) == list(range(200))
