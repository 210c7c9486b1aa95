"""Names of files: whatever a worker is called, its name comes back."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smdebug.exceptions import SMDebugValueError
from smdebug.storage.format.keys import (
    IndexName,
    collections_key,
    event_key,
    index_key,
    parse_collections_worker,
    parse_event_seq,
    parse_index_key,
    v1_event_key,
    v1_index_key,
    v1_index_start,
)
from smdebug.storage.stores.base import check_key

if TYPE_CHECKING:
    from collections.abc import Callable

# Up to 12 bytes per character when percent-encoded, of the 200 that a worker may have.
WORKERS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=16)
STEPS = st.integers(0, 10**12 - 1)
SEQS = st.integers(0, 10**7)

DEVICE = "/job:worker/replica:0/task:1/device:GPU:3"
V1_DEVICE = "_job-worker_replica-0_task-1_device-GPU-3"
ODD = ["worker_0", "a/b", "a:b", "a__b", "a b", "100%", "%2F", "..", ".", "a.json", "a_collections"]
ODD += ["a.parquet", "ü", "\n", "w\n", "x.tmp", "-000001", "0-1_w", DEVICE, V1_DEVICE, "~"]


@pytest.mark.parametrize("worker", ODD)
@pytest.mark.parametrize("step", [0, 999, 1000, 10**12 - 1])
def test_unusual_worker_names(worker: str, step: int) -> None:
    assert_round_trip(step, 3, worker)


@given(STEPS, SEQS, WORKERS)
@example(0, 0, V1_DEVICE)
def test_every_worker(step: int, seq: int, worker: str) -> None:
    assert_round_trip(step, seq, worker)


def assert_round_trip(step: int, seq: int, worker: str) -> None:
    keys = {
        index_key(step, seq, worker): IndexName(step, seq, worker),
        v1_index_key(step, worker): IndexName(step, None, worker),
    }
    for key, name in keys.items():
        assert parse_index_key(check_key(key)) == name
        assert key.count("/") == 2
        assert not key.endswith(".tmp")
    event = check_key(event_key(step, seq, worker))
    assert parse_event_seq(event, worker) == seq
    assert parse_event_seq(event, worker + "x") is None
    for v1 in (False, True):
        key = check_key(collections_key(worker, v1))
        assert parse_collections_worker(key) == worker
        assert key.count("/") == 2
    check_key(v1_event_key(step, worker))


@given(STEPS, STEPS, WORKERS, SEQS)
def test_keys_sort_by_step(step: int, other: int, worker: str, seq: int) -> None:
    first, second = sorted((step, other))
    start = v1_index_start(second)
    for key in (index_key(second, seq, worker), v1_index_key(second, worker)):
        assert key > start
    if first < second:
        for key in (index_key(first, seq, worker), v1_index_key(first, worker)):
            assert key < start


def test_key_formats_are_stable() -> None:
    assert v1_event_key(10, "worker_0") == ("events/000000000010/000000000010_worker_0.tfevents")
    assert v1_index_key(12_345, "worker_0") == "index/000000012/000000012345_worker_0.json"
    assert collections_key("worker_0") == "collections/000000000/worker_0_collections.json"
    assert event_key(10, 2, "worker_0") == (
        "events/000000000010/000000000010-000002_worker_0.tfevents"
    )
    assert index_key(12_345, 2, "worker_0") == (
        "index/000000012/000000012345-000002_worker_0.parquet"
    )


def test_tensorflow_devices_in_v1_spelling() -> None:
    assert v1_index_key(1, DEVICE) == f"index/000000000/000000000001_{V1_DEVICE}.json"
    assert collections_key(DEVICE, v1=True).endswith(f"/{V1_DEVICE}_collections.json")
    for key in (v1_index_key(1, DEVICE), index_key(1, 0, DEVICE)):
        name = parse_index_key(key)
        assert name is not None
        assert name.worker == DEVICE


def test_attempts_of_a_v1_step_differ() -> None:
    keys = [v1_event_key(5, "w", attempt) for attempt in range(3)]
    assert len(set(keys)) == 3
    assert all(key.startswith("events/000000000005/000000000005_w") for key in keys)


@pytest.mark.parametrize("step", [-1, 10**12, 10**15])
def test_bad_steps(step: int) -> None:
    makers: list[Callable[[], str]] = [
        lambda: event_key(step, 0, "w"),
        lambda: index_key(step, 0, "w"),
        lambda: v1_event_key(step, "w"),
        lambda: v1_index_key(step, "w"),
    ]
    for make in makers:
        with pytest.raises(SMDebugValueError, match=f"step.*{step}"):
            make()


def test_an_empty_worker() -> None:
    makers: list[Callable[[], str]] = [
        lambda: event_key(0, 0, ""),
        lambda: index_key(0, 0, ""),
        lambda: v1_index_key(0, ""),
        lambda: collections_key(""),
    ]
    for make in makers:
        with pytest.raises(SMDebugValueError, match="worker"):
            make()


@pytest.mark.parametrize(
    "key",
    [
        "",
        "index/",
        "index/000000000/.json",
        "index/000000000/_w.json",
        "index/000000000/notes.json",
        "index/000000000/000000000001_.json",
        "index/000000000/000000000001_w.csv",
        "index/000000000/000000000001-x_w.parquet",
        "index/000000000/1-000000_w.parquet",
        "index/000000000/000000000001_w.parquet",
        "index/000000000001_w.json",
        "events/000000000/000000000001_w.json",
        "a/index/000000000/000000000001_w.json",
    ],
)
def test_invalid_index_files_are_rejected(key: str) -> None:
    assert parse_index_key(key) is None


@given(st.text(string.printable, max_size=40))
def test_parsing_accepts_any_string(key: str) -> None:
    parse_index_key(f"index/000000000/{key}")
    parse_event_seq(f"events/000000000000/{key}", "w")
    parse_collections_worker(f"collections/000000000/{key}")
