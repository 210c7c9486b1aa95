"""The publisher: what it writes and when, without a thread."""

from __future__ import annotations

import logging
import shutil
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.storage.writer.writing import (
    FORMATS,
    CountingStore,
    Memory,
    batch_of,
    make_entry,
    steps_in,
    values_in,
)

from smdebug.exceptions import SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.end_marker import EndMarker
from smdebug.storage.format.keys import END_KEY, event_key, parse_index_key
from smdebug.storage.raw_tensors import VALUE_COLUMNS, record_locations
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.v2 import compaction
from smdebug.storage.writer import publisher
from smdebug.storage.writer.publisher import Publisher, flush_interval

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from smdebug.storage.stores.base import Store


# ---- steps


@pytest.mark.parametrize("format", FORMATS)
def test_everything_is_there_after_close(format: str) -> None:
    store = MemoryStore()
    with closing(Publisher(store, format=format)) as run:
        for step in range(10):
            run.add(batch_of(step))
    assert values_in(store) == {step: float(step) for step in range(10)}
    assert "training_job_end.ts" in set(store.list())
    assert run.steps == 10
    assert run.bytes > 0


@pytest.mark.parametrize("format", FORMATS)
def test_close_without_the_end_marker(format: str) -> None:
    store = MemoryStore()
    run = Publisher(store, format=format)
    run.add(batch_of(0))
    run.close(end=False)
    assert "training_job_end.ts" not in set(store.list())
    assert steps_in(store) == [0]


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_without_steps(format: str) -> None:
    store = MemoryStore()
    with closing(Publisher(store, format=format)):
        pass
    assert list(store.list()) == ["training_job_end.ts"]
    assert steps_in(store) == []


@pytest.mark.parametrize("format", FORMATS)
def test_flush_publishes_finished_steps_only(format: str) -> None:
    store = MemoryStore()
    run = Publisher(store, format=format, flush_seconds=1e6)
    run.add(batch_of(0, make_entry(1.0, "a")))
    run.add(batch_of(0, make_entry(2.0, "b")))
    run.flush()
    assert steps_in(store) == []
    run.add(batch_of(1))
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
    with closing(Publisher(store, format=format)) as run:
        run.finish_step()
        run.flush()
        run.finish_step()
    assert steps_in(store) == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_name_saved_twice_in_a_step_keeps_the_later(format: str) -> None:
    store = MemoryStore()
    with closing(Publisher(store, format=format)) as run:
        run.add(batch_of(0, make_entry(1.0, "a"), make_entry(1.0), make_entry(2.0)))
        run.add(batch_of(0, make_entry(3.0)))
    assert values_in(store) == {0: 3.0}


def test_step_saved_again_keeps_the_later() -> None:
    store = MemoryStore()
    with closing(Publisher(store)) as run:
        run.add(batch_of(0, make_entry(1.0, "a"), make_entry(1.0)))
        run.add(batch_of(1))
        run.add(batch_of(0, make_entry(3.0)))
    assert values_in(store) == {0: 3.0, 1: 1.0}
    assert values_in(store, "a") == {0: 1.0}


def test_steps_may_come_in_any_order() -> None:
    store = MemoryStore()
    with closing(Publisher(store)) as run:
        for step in (5000, 3, 999, 1000, 0):
            run.add(batch_of(step))
    assert values_in(store) == {step: float(step) for step in (0, 3, 999, 1000, 5000)}


def test_batches_without_entries() -> None:
    store = MemoryStore()
    with closing(Publisher(store)) as run:
        run.add(StepBatch(0, ModeKeys.TRAIN, 0, []))
        run.add(batch_of(1))
        run.add(StepBatch(2, ModeKeys.TRAIN, 2, []))
    assert values_in(store) == {1: 1.0}


@pytest.mark.parametrize("format", FORMATS)
def test_modes_and_times(format: str) -> None:
    store = MemoryStore()
    with closing(Publisher(store, format=format)) as run:
        for step, mode in enumerate(ModeKeys):
            run.add(StepBatch(step, mode, step + 10, [make_entry(0.0)], time=100.0 + step))
    reader = RunReader(store)
    reader.refresh()
    rows = reader.rows("x", ["mode", "mode_step"]).to_pylist()
    assert [(row["mode"], row["mode_step"]) for row in rows] == [
        ("TRAIN", 10), ("EVAL", 11), ("PREDICT", 12), ("GLOBAL", 13),
    ]  # fmt: skip


# ---- collections, workers


def test_collections_are_replaced() -> None:
    store = MemoryStore()
    with closing(Publisher(store, "a/b")) as run:
        run.write_collections('{"collections": {}}')
        run.write_collections('{"collections": {"x": 1}}')
    reader = RunReader(store)
    assert reader.collections() == {"a/b": {"collections": {"x": 1}, "_meta": {}}}


WORKERS = ["worker_0", "a/b", "a:b", "a__b", "a b", "100%", "ü", "..", "x.tmp"]
WORKERS += ["/job:worker/replica:0/task:1/device:GPU:3"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("location", ["memory", "local"])
def test_several_workers(format: str, location: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if location == "memory" else LocalStore(tmp_path)
    writers = [Publisher(store, worker, format=format) for worker in WORKERS]
    for step in range(3):
        for number, run in enumerate(writers):
            run.add(batch_of(step, make_entry(number)))
    for run in writers:
        run.write_collections("{}")
        run.close()
    reader = RunReader(store)
    reader.refresh()
    table = reader.rows("x", [*VALUE_COLUMNS, "worker"])
    values = reader.read_values([location for location in record_locations(table, "x") if location])
    found = zip(table["worker"].to_pylist(), [value[0] for value in values], strict=True)
    assert sorted(found) == sorted(
        (worker, number) for number, worker in enumerate(WORKERS) for _ in range(3)
    )
    assert set(reader.collections()) == set(WORKERS)


# ---- resuming


@pytest.mark.parametrize("location", ["memory", "local"])
def test_a_resumed_run_overwrites_nothing(location: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if location == "memory" else LocalStore(tmp_path)
    before: dict[str, bytes] = {}
    for attempt in range(3):
        run = Publisher(store, flush_seconds=1e6)
        run.add(batch_of(0, make_entry(attempt), make_entry(attempt, f"only{attempt}")))
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
        with closing(Publisher(store)) as run:
            for step in range(3):
                run.add(batch_of(step, make_entry(attempt * 10 + step)))
                run.flush()
        assert values_in(store) == {step: attempt * 10.0 + step for step in range(3)}
        assert len([key for key in store.list("index/")]) == 1


@pytest.mark.parametrize("seq", [0, 1, 7])
def test_an_event_file_without_index_is_not_overwritten(seq: int) -> None:
    """What a job leaves that was killed between its two files."""
    store = MemoryStore()
    orphan = event_key(0, seq, "worker_0")
    store.write(orphan, [b"orphan"])
    with closing(Publisher(store)) as run:
        run.add(batch_of(0))
    assert bytes(store.read(orphan)) == b"orphan"
    assert values_in(store) == {0: 0.0}


def test_sequence_numbers_are_per_worker() -> None:
    store = MemoryStore()
    with closing(Publisher(store, "b")) as run:
        for step in range(5):
            run.add(batch_of(step))
            run.flush()
    with closing(Publisher(store, "a")) as run:
        run.add(batch_of(0))
    names = [parse_index_key(key) for key in store.list("index/")]
    assert [(name.worker, name.seq) for name in names if name and name.worker == "a"] == [("a", 0)]


# ---- compaction


def published(store: Store, steps: Iterable[int], **options: Any) -> Publisher:
    run = Publisher(store, flush_seconds=1e6, **options)
    for step in steps:
        run.add(batch_of(step))
        run.finish_step()
        run.flush()
    return run


def test_close_merges_small_index_files() -> None:
    store = MemoryStore()
    run = published(store, range(2500, 2520))
    before = list(store.list("index/"))
    assert len(before) == 20
    run.close()
    (after,) = store.list("index/")
    assert after not in before
    assert values_in(store) == {step: float(step) for step in range(2500, 2520)}


def test_reader_that_sees_old_and_new_files_reads_each_row_once() -> None:
    class Keeping(MemoryStore):
        def delete(self, key: str) -> None:
            raise OSError("not now")

    store = Keeping()
    run = published(store, range(5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher.logger, "warning", lambda *args, **kwargs: None)
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
    assert "Cannot compact the index" in caplog.text
    store.write(damaged, [data])
    assert steps_in(store) == [0, 1, 2]
    assert "training_job_end.ts" in set(store.list())


def test_large_index_files_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "ROWS_PER_FILE", 20)
    store = MemoryStore()
    run = Publisher(store, flush_seconds=1e6)
    for step, count in enumerate([10, 3, 30, 4, 9, 9, 9]):
        run.add(batch_of(step, *(make_entry(step, f"t{n}") for n in range(count))))
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


def test_compaction_is_limited_to_one_worker() -> None:
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
    with closing(Publisher(store, flush_seconds=1e6)) as run:
        for step in range(2000):
            run.add(batch_of(step, Entry("loss", np.float64(step)), make_entry(step)))
    assert len(store.writes) == 3
    assert store.lists <= 4
    assert run.segments == 1
    assert run.steps == 2000


def test_scalars_need_no_event_file() -> None:
    store = CountingStore()
    with closing(Publisher(store)) as run:
        run.add(batch_of(0, Entry("loss", np.float32(0.5))))
    assert [key.split("/")[0] for key in store.writes] == ["index", "training_job_end.ts"]


def test_a_full_segment_is_published_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "SEGMENT_BYTES", 10_000)
    store = CountingStore()
    run = Publisher(store, flush_seconds=1e6)
    for step in range(10):
        run.add(batch_of(step, make_entry(step, size=1000)))
        run.flush_if_due()
    events = [key for key in store.writes if key.startswith("events/")]
    assert len(events) >= 4
    run.close()
    assert values_in(store) == {step: float(step) for step in range(10)}


class Clock:
    """A clock that the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_steps_are_published_at_their_deadline() -> None:
    clock, store = Clock(), MemoryStore()
    run = Publisher(store, clock=clock)
    assert run.deadline is None
    run.add(batch_of(0))
    assert run.deadline is None
    clock.now += 3
    run.finish_step()
    # From the end of the oldest finished step on.
    assert run.deadline == 1004.0
    clock.now += 0.5
    run.add(batch_of(1), finish=True)
    assert run.deadline == 1004.0
    run.flush_if_due()
    assert steps_in(store) == []
    clock.now = 1004.0
    run.flush_if_due()
    assert steps_in(store) == [0, 1]
    assert run.deadline is None
    clock.now = 1000.0 + 5000
    run.add(batch_of(2), finish=True)
    assert run.deadline == clock.now + 10


def test_format_v1_publishes_every_finished_step_at_once() -> None:
    store = MemoryStore()
    run = Publisher(store, format="v1", flush_seconds=1e6)
    run.add(batch_of(0))
    run.flush_if_due()
    assert steps_in(store) == []
    run.finish_step()
    run.flush_if_due()
    assert steps_in(store) == [0]


def test_one_event_file_before_its_index() -> None:
    store = CountingStore()
    with closing(Publisher(store)) as run:
        run.add(batch_of(0))
    assert [key.split("/")[0] for key in store.writes] == [
        "events", "index", "training_job_end.ts",
    ]  # fmt: skip


def test_an_unknown_format() -> None:
    with pytest.raises(SMDebugValueError, match="v3"):
        Publisher(MemoryStore(), format="v3")


# ---- what is reported and released


def test_published_steps_and_bytes_are_reported() -> None:
    reported: list[tuple[set[int], int]] = []
    run = Publisher(MemoryStore(), on_published=lambda *what: reported.append(what))
    held = [run.add(batch_of(step)) for step in (0, 1, 0)]
    run.flush()
    # Step 0 is open again: it is not published as a whole.
    assert reported == [({1}, held[0] + held[1])]
    run.flush()
    assert len(reported) == 1
    run.close()
    assert reported[1:] == [({0}, held[2])]
    assert (run.steps, run.segments) == (3, 2)


def test_memory_is_released_when_nothing_needs_it() -> None:
    memory = Memory()
    run = Publisher(MemoryStore())
    run.add(memory.pending(0))
    run.add(memory.pending(1))
    run.flush()
    assert memory.returned == 0
    run.finish_step()
    run.flush()
    assert memory.returned == 2
    run.add(memory.pending(2))
    run.discard()
    assert memory.returned == 3


def test_what_is_discarded_is_never_published() -> None:
    store = MemoryStore()
    run = Publisher(store)
    run.add(batch_of(0), finish=True)
    run.add(batch_of(1))
    run.discard()
    assert run.deadline is None
    run.add(batch_of(2))
    run.close()
    assert steps_in(store) == [2]


# ---- a run that is removed, a run that is resumed


def test_a_directory_that_is_removed_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Publisher(LocalStore(tmp_path / "run"))
    run.write_collections('{"collections": {}}')
    for step in (0, 1):
        run.add(batch_of(step), finish=True)
    run.flush()
    shutil.rmtree(tmp_path / "run")
    run.add(batch_of(2), finish=True)
    with caplog.at_level(logging.WARNING, "smdebug.storage"):
        run.flush()
    assert "The steps up to 1 are lost" in caplog.text
    shutil.rmtree(tmp_path / "run")
    run.write_collections('{"collections": {"x": 1}}')
    assert "The steps up to 2 are lost" in caplog.text
    run.add(batch_of(3))
    run.close()
    store = LocalStore(tmp_path / "run")
    assert steps_in(store) == [3]
    assert set(RunReader(store).collections()) == {"worker_0"}


def test_the_end_marker_of_a_resumed_run_is_removed_with_the_first_step() -> None:
    store = MemoryStore()
    Publisher(store).close()
    run = Publisher(store, reopen=True)
    run.write_collections("{}")
    run.flush()
    assert END_KEY in set(store.list())
    run.add(batch_of(0), finish=True)
    run.flush()
    assert END_KEY not in set(store.list())
    run.close(end=False)
    assert END_KEY not in set(store.list())
    Publisher(store).close(interrupted=True)
    marker = EndMarker.of(store)
    assert marker is not None
    assert marker.interrupted
