"""When a trial looks for new steps, and how much of the index it looks at."""

from __future__ import annotations

import cProfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.writer import RunWriter
from smdebug.testing.runs import default_batch, default_collections, make_run
from smdebug.trials import StepState, create_trial
from smdebug.trials.refresh import Refresher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class SlowStore(MemoryStore):
    """A store whose listings take time, and that notes what was listed behind what."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.cost = 0.0
        self.listed: list[str] = []

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        self.clock.now += self.cost
        self.listed.append(after)
        return super().list(prefix, after)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> SlowStore:
    return SlowStore(clock)


def publish(store: MemoryStore, step: int, worker: str = "worker_0", format: str = "v2") -> None:
    """Writes one step of a job that goes on."""
    writer = RunWriter(store, worker, format)
    entry = Entry("loss", np.asarray(np.float64(step)))
    writer.submit(StepBatch(step, ModeKeys.TRAIN, step, [entry]))
    writer.close(end=False)


def known(reader: RunReader) -> list[int]:
    return sorted(
        {int(step) for arrays in reader.steps().values() for step in arrays.step.tolist()}
    )


def test_a_cheap_listing_is_made_for_every_question(store: SlowStore, clock: Clock) -> None:
    refresher = Refresher(RunReader(store), clock)
    assert refresher.due()
    for _ in range(3):
        refresher.run(5000)
        assert refresher.due()
    # Each of them was a full one.
    assert store.listed == ["", "", ""]


def test_nothing_new_is_said_to_be_nothing_new(store: SlowStore, clock: Clock) -> None:
    refresher = Refresher(RunReader(store), clock)
    assert not refresher.run(None)
    publish(store, 0)
    assert refresher.run(None)
    assert not refresher.run(None)


@pytest.mark.parametrize(("cost", "pause"), [(0.01, 0.1), (0.04, 0.4), (1.0, 0.5), (60.0, 0.5)])
def test_a_dear_listing_is_made_seldom_but_at_least_twice_a_second(
    store: SlowStore, clock: Clock, cost: float, pause: float
) -> None:
    refresher = Refresher(RunReader(store), clock)
    store.cost = cost
    refresher.run(None)
    assert not refresher.due()
    clock.now += pause * 0.9
    assert not refresher.due()
    clock.now += pause * 0.11
    assert refresher.due()


def test_between_full_listings_only_the_newest_steps_are_listed(
    store: SlowStore, clock: Clock
) -> None:
    reader = RunReader(store)
    refresher = Refresher(reader, clock)
    publish(store, 7000)
    store.cost = 1.0
    store.listed.clear()
    assert refresher.run(6000)
    assert store.listed == [""]
    publish(store, 7001, "worker_1")
    store.listed.clear()
    clock.now += 5
    assert refresher.run(6000)
    (after,) = store.listed
    assert after.startswith("index/000000006/")
    assert known(reader) == [7000, 7001]


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_a_late_file_of_a_slow_worker_is_read(store: SlowStore, clock: Clock, format: str) -> None:
    reader = RunReader(store)
    refresher = Refresher(reader, clock)
    for step in (0, 3000, 6000):
        publish(store, step, "fast", format)
    store.cost = 1.0
    refresher.run(None)
    publish(store, 0, "slow", format)
    clock.now += 1
    refresher.run(5000)
    assert set(reader.steps()) == {"fast"}
    # Twenty times the cost of a full listing later it is made again.
    clock.now += 20
    assert refresher.run(5000)
    assert set(reader.steps()) == {"fast", "slow"}


def test_a_resumed_run_at_a_lower_step_is_found(store: SlowStore, clock: Clock) -> None:
    reader = RunReader(store)
    refresher = Refresher(reader, clock)
    publish(store, 9000)
    store.cost = 0.1
    refresher.run(None)
    publish(store, 10)
    clock.now += 10
    refresher.run(8000)
    assert known(reader) == [10, 9000]


def test_a_full_listing_can_be_asked_for(store: SlowStore, clock: Clock) -> None:
    reader = RunReader(store)
    refresher = Refresher(reader, clock)
    publish(store, 9000)
    store.cost = 1.0
    refresher.run(None)
    publish(store, 10, "worker_1")
    assert not refresher.run(8000)
    assert refresher.run(8000, full=True)
    assert known(reader) == [10, 9000]


def test_files_that_were_joined_are_noticed_where_only_the_newest_are_listed(
    store: SlowStore, clock: Clock
) -> None:
    reader = RunReader(store)
    refresher = Refresher(reader, clock)
    publish(store, 9000)
    store.cost = 1.0
    refresher.run(None)
    # Closing joins the two, in a file of the first step: before what is listed.
    publish(store, 10)
    assert refresher.run(8000)
    assert known(reader) == [10, 9000]


# ---- the same through a trial


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore("memory://place")
    monkeypatch.setattr("smdebug.trials.trial.open_store", lambda path: store)
    return store


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_a_trial_reads_late_files(place: MemoryStore, format: str) -> None:
    workers = ["worker_0", "worker_1"]
    make_run(place, [], workers, format, end=False)
    for step in (0, 5, 10):
        publish(place, step, "worker_0", format)
    publish(place, 10, "worker_1", format)
    trial = create_trial("memory://place")
    # The second worker has moved on, so all count as complete ...
    assert trial.steps() == [0, 5, 10]
    assert trial.tensor("loss").workers(5) == ["worker_0"]
    # ... and what it delivers late is read all the same.
    publish(place, 5, "worker_1", format)
    trial.refresh_data()
    assert trial.tensor("loss").workers(5) == workers
    assert trial.tensor("loss").value(5, worker="worker_1") == 5.0


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_a_trial_finds_a_resumed_run(place: MemoryStore, format: str) -> None:
    make_run(place, [], format=format, end=False)
    for step in (0, 100, 200):
        publish(place, step, format=format)
    trial = create_trial("memory://place")
    assert trial.steps() == [0, 100, 200]
    publish(place, 150, format=format)
    trial.refresh_data()
    assert trial.steps() == [0, 100, 150, 200]
    assert trial.tensor("loss").value(150) == 150.0


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_a_step_that_a_resumed_run_saves_again_has_its_new_value(
    place: MemoryStore, format: str
) -> None:
    make_run(place, [], format=format, end=False)
    publish(place, 7, format=format)
    trial = create_trial("memory://place")
    assert trial.tensor("loss").value(7) == 7.0
    writer = RunWriter(place, "worker_0", format)
    entry = Entry("loss", np.asarray(np.float64(-1.5)))
    writer.submit(StepBatch(7, ModeKeys.TRAIN, 7, [entry]))
    writer.submit(StepBatch(8, ModeKeys.TRAIN, 8, [entry]))
    writer.close(end=False)
    trial.refresh_data()
    assert trial.steps() == [7, 8]
    assert trial.tensor("loss").value(7) == -1.5


def test_no_step_that_was_shown_as_complete_is_taken_back(
    place: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW", "10")
    make_run(place, [], ["fast", "slow"], end=False)
    for step in range(12):
        publish(place, step, "fast")
    publish(place, 0, "slow")
    trial = create_trial("memory://place")
    # Eleven wait, one more than may: the older half is given up.
    assert trial.steps() == [0, 1, 2, 3, 4, 5]
    publish(place, 2, "slow")
    trial.refresh_data()
    assert trial.steps() == [0, 1, 2, 3, 4, 5]
    assert trial.last_complete_step == 5
    assert trial.has_passed_step(5) is StepState.AVAILABLE


def test_collections_that_come_later_are_seen(place: MemoryStore) -> None:
    make_run(place, [0], end=False)
    trial = create_trial("memory://place")
    assert "late" not in trial.collections()
    manager = default_collections()
    manager.get("late").include("loss")
    writer = RunWriter(place)
    writer.write_collections(manager.to_json())
    writer.close(end=False)
    publish(place, 1)
    trial.refresh_data()
    assert trial.collection("late").include_regex == ["loss"]
    assert trial.tensor_names(collection="late") == ["loss"]


def test_what_a_script_adds_to_a_collection_outlives_a_refresh(place: MemoryStore) -> None:
    make_run(place, [0], end=False)
    trial = create_trial("memory://place")
    trial.collection("mine").include("weight")
    assert trial.tensor_names(collection="mine") == ["fc.weight"]
    publish(place, 1)
    trial.refresh_data()
    assert trial.steps() == [0, 1]
    assert trial.tensor_names(collection="mine") == ["fc.weight"]


def test_one_new_step_costs_the_same_however_many_there_are(
    place: MemoryStore, format: str
) -> None:
    """Counted in function calls, which no busy machine changes."""
    make_run(place, [0], format=format, end=False)
    trial = create_trial("memory://place")
    trial.dynamic_refresh = False
    writer = RunWriter(place, "worker_0", format)
    costs = {}
    for step in range(1, 161):
        writer.submit(default_batch("worker_0", step))
        writer.finish_step()
        writer.flush()
        if step not in (20, 160):
            continue
        trial.refresh_data()
        with cProfile.Profile() as profile:
            trial.tensor("fc.weight").value(step)
        costs[step] = sum(entry.callcount for entry in profile.getstats())
    writer.close()
    assert costs[160] < 3 * costs[20]


def test_a_finished_trial_asks_nothing_more(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("run")
    make_run(path, range(5))
    trial = create_trial(path)
    assert trial.loaded_all_steps
    calls.clear()
    trial.steps()
    trial.refresh_data()
    trial.maybe_refresh()
    trial.tensor_names()
    trial.workers()
    trial.collections()
    trial.tensor("loss").series()
    trial.tensor("fc.weight").shapes()
    trial.wait_for_steps([0, 4])
    assert calls == []


def test_opening_reads_no_event_file_and_does_not_list_them(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, str]], format: str
) -> None:
    path = tmp_path_factory.mktemp("run")
    make_run(path, range(5), format=format)
    trial = create_trial(path)
    trial.tensor_names()
    trial.steps()
    trial.tensor("fc.weight").steps()
    assert not [key for method, key in calls if method == "read" and key.startswith("events")]
    # A run holds as many event files as steps: neither they nor "everything" may be listed.
    assert not [call for call in calls if call[0] == "list" and call[1] in ("", "events/")]


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_a_worker_that_closes_later_than_the_first_is_seen(tmp_path: Path, format: str) -> None:
    collections = default_collections()
    collections.set_num_workers(2)
    writers = {name: RunWriter(LocalStore(tmp_path), name, format) for name in ("a", "b")}
    for name, writer in writers.items():
        writer.write_collections(collections.to_json())
        writer.submit(default_batch(name, 0))
        writer.finish_step()
        writer.flush()
    writers["a"].submit(default_batch("a", 1))
    writers["a"].close()
    trial = create_trial(tmp_path)
    assert trial.tensor("loss").workers(1) == ["a"]
    writers["b"].submit(default_batch("b", 1))
    writers["b"].close()
    assert trial.tensor("loss").workers(1) == ["a", "b"]
    assert trial.loaded_all_steps


def test_a_step_of_shapes_that_is_saved_again_is_noticed(tmp_path: Path) -> None:
    writer = RunWriter(LocalStore(tmp_path), format="v1")
    writer.write_collections(default_collections().to_json())
    shape = Entry("a", shape=(3,), dtype="float32")
    for entry in (shape, Entry("b", np.ones(3))):
        writer.submit(StepBatch(0, ModeKeys.TRAIN, 0, [entry]))
        writer.finish_step()
        writer.flush()
        if entry is shape:
            trial = create_trial(tmp_path)
            assert trial.tensor_names() == ["a"]
    assert trial.tensor_names() == ["a", "b"]
    writer.close()


def test_steps_the_reader_found_by_itself_are_not_forgotten(tmp_path: Path) -> None:
    writer = RunWriter(LocalStore(tmp_path))
    writer.write_collections(default_collections().to_json())
    for step in range(2):
        writer.submit(default_batch("worker_0", step))
        writer.finish_step()
        writer.flush()
        if step == 0:
            trial = create_trial(tmp_path)
    # As it does when compaction took away a file it was reading.
    trial._reader.refresh()
    assert trial.steps() == [0, 1]
    writer.close()
