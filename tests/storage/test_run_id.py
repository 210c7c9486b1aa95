"""Run IDs: files of another run are rejected."""

from __future__ import annotations

import pytest

from smdebug.exceptions import IndexReaderException, SMDebugError
from smdebug.storage.check.run import check_run
from smdebug.storage.format.keys import collections_key, index_key
from smdebug.storage.reader import RunReader
from smdebug.storage.run_id import run_ids
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.v2.compaction import compact_run
from smdebug.storage.writer import RunWriter
from smdebug.testing import make_run
from smdebug.testing.runs import default_batch

FORMATS = ["v2", "v1"]


def read(store: MemoryStore) -> RunReader:
    reader = RunReader(store)
    reader.refresh()
    return reader


def run_of(format: str, steps: range = range(3), end: bool = True) -> MemoryStore:
    store = MemoryStore()
    make_run(store, steps, format=format, flush_every=1, end=end)
    return store


def first_index(store: MemoryStore) -> str:
    return next(store.list("index/"))


@pytest.mark.parametrize("format", FORMATS)
def test_an_index_file_of_another_run_is_refused(format: str) -> None:
    store, other = run_of(format), run_of(format)
    read(store)
    key = first_index(store)
    store.write(key, [other.read(first_index(other))])
    with pytest.raises(IndexReaderException, match="left here by another run"):
        read(store)
    assert any("another run" in each.what for each in check_run(store).damages)


@pytest.mark.parametrize("format", FORMATS)
def test_a_collections_file_of_another_run_is_refused(format: str) -> None:
    store, other = run_of(format), run_of(format)
    key = collections_key("worker_0")
    store.write(key, [other.read(key)])
    with pytest.raises(IndexReaderException, match="left here by another run"):
        read(store)


@pytest.mark.parametrize("format", FORMATS)
def test_resumed_job_keeps_the_run_id(format: str) -> None:
    store = run_of(format, end=False)
    before = list(run_ids(store))
    make_run(store, range(3, 5), format=format)
    assert list(run_ids(store)) == before
    assert None not in before
    assert sorted(read(store).steps()["worker_0"].step.tolist()) == [0, 1, 2, 3, 4]
    assert check_run(store).damages == []


@pytest.mark.parametrize("format", FORMATS)
def test_resumed_job_finds_the_run_id_without_the_collections_file(format: str) -> None:
    store = run_of(format, end=False)
    before = list(run_ids(store))
    for damage in (None, b"{"):
        key = collections_key("worker_0")
        if damage is None:
            store.delete(key)
        else:
            store.write(key, [damage])
        make_run(store, range(3, 5), format=format, end=False)
        assert list(run_ids(store)) == before
        read(store)


def test_run_without_id_stays_without() -> None:
    store = MemoryStore()
    with RunWriter(store) as writer:
        writer.submit(default_batch("worker_0", 0))
    make_run(store, range(1, 3))
    assert list(run_ids(store)) == [None]
    assert sorted(read(store).steps()["worker_0"].step.tolist()) == [0, 1, 2]


def test_index_files_of_a_worker_that_never_began() -> None:
    store, other = run_of("v2"), MemoryStore()
    make_run(other, range(3), ["a"])
    key = first_index(other)
    store.write(key, [other.read(key)])
    with pytest.raises(IndexReaderException, match="no collections file of worker a"):
        read(store)


def test_renamed_index_files_are_refused() -> None:
    store = run_of("v2")
    (key,) = store.list("index/")
    data = bytes(store.read(key))
    for name, what in (
        (index_key(7, 9, "worker_0"), "starts with step 0"),
        (index_key(0, 0, "worker_0"), "rows of the later segment"),
        (index_key(0, 9, "worker_1"), "rows of worker worker_0"),
    ):
        changed = MemoryStore()
        changed.write(name, [data])
        with pytest.raises(IndexReaderException, match=what):
            read(changed)


def test_index_files_of_two_runs_are_not_merged() -> None:
    store, other = MemoryStore(), MemoryStore()
    for each in (store, other):
        writer = RunWriter(each)
        writer.write_collections('{"collections": {}}')
        for step in range(2):
            writer.submit(default_batch("worker_0", step))
            writer.finish_step()
            writer.flush()
        files = {key: bytes(each.read(key)) for key in each.list()}
        writer.close()
        for key in list(each.list("index/")):
            each.delete(key)
        for key, data in files.items():
            each.write(key, [data])
    key = first_index(store)
    store.write(key, [other.read(key)])
    before = {each: bytes(store.read(each)) for each in store.list()}
    with pytest.raises(SMDebugError, match="several runs"):
        compact_run(store)
    assert {
        each: bytes(store.read(each)) for each in store.list("index/")
    }.items() <= before.items()


def test_restored_v1_index_file_is_rejected() -> None:
    store = run_of("v1", end=False)
    key = first_index(store)
    old = bytes(store.read(key))
    make_run(store, range(1), format="v1")
    read(store)
    store.write(key, [old])
    with pytest.raises(IndexReaderException, match="is older than"):
        read(store)


def test_swapped_index_files_of_format_v1() -> None:
    store = run_of("v1")
    one, other, *_ = store.list("index/")
    data = bytes(store.read(one))
    store.write(one, [store.read(other)])
    store.write(other, [data])
    with pytest.raises(IndexReaderException, match=r"not that of its name|not of"):
        read(store)
