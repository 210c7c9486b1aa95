"""Joining the index files that a killed job has left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from smdebug.exceptions import IndexReaderException, SMDebugRuntimeError
from smdebug.storage.check.run import check_run
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.v2 import compaction
from smdebug.storage.v2.compaction import compact_run
from smdebug.storage.writer import RunWriter
from smdebug.storage.writer_lock import WriterLock
from smdebug.testing import make_run
from smdebug.testing.runs import default_batch, default_collections

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.storage.stores.base import Store


def leave_run(store: Store, steps: int = 6, workers: tuple[str, ...] = ("a", "b")) -> None:
    """Writes a run as a job does that is killed: nothing is joined, no end is marked."""
    manager = default_collections()
    manager.set_num_workers(len(workers))
    for worker in workers:
        writer = RunWriter(store, worker)
        writer.write_collections(manager.to_json())
        for step in range(steps):
            writer.submit(default_batch(worker, step), finish=True)
            writer.flush()


def index_sizes(store: Store) -> dict[str, int]:
    return {key: len(store.read(key)) for key in store.list("index/")}


def rows_of(store: Store) -> list[dict[str, Any]]:
    reader = RunReader(store)
    reader.refresh()
    return reader.table().to_pylist()  # type: ignore[no-any-return]


def test_all_workers(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    leave_run(store)
    before, rows = index_sizes(store), rows_of(store)
    told: list[tuple[int, int]] = []
    done = compact_run(store, tell=lambda *pair: told.append(pair))
    after = index_sizes(store)
    assert (done.files_before, done.files_after) == (len(before), len(after)) == (12, 2)
    assert (done.bytes_before, done.bytes_after) == (sum(before.values()), sum(after.values()))
    assert told == [(1, 2), (2, 2)]
    assert rows_of(store) == rows
    assert check_run(store).damages == []
    again = compact_run(store)
    assert (again.files_before, again.files_after) == (2, 2)
    assert index_sizes(store) == after


def test_large_files_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "ROWS_PER_FILE", 6)
    store = MemoryStore()
    leave_run(store, 10, ("a",))
    rows = rows_of(store)
    # Two rows a step, at most six in a file; and a file of three and more is left alone.
    assert compact_run(store).files_after == len(index_sizes(store)) == 4
    assert rows_of(store) == rows
    kept = index_sizes(store)
    compact_run(store)
    assert index_sizes(store) == kept


def test_replaced_rows_are_removed() -> None:
    store = MemoryStore()
    leave_run(store, 3, ("a",))
    leave_run(store, 3, ("a",))
    assert sum(index_sizes(store).values()) > 0
    assert len(index_sizes(store)) == 6
    assert compact_run(store).files_after == 1
    report = check_run(store)
    assert (report.damages, report.rows) == ([], 6)
    assert report.remarks[0].count == 3


def test_a_bucket(bucket: str) -> None:
    store = open_store(f"s3://{bucket}/compaction")
    leave_run(store)
    rows = rows_of(store)
    assert compact_run(store).files_after == 2
    assert rows_of(store) == rows
    assert check_run(store).damages == []
    with pytest.raises(SMDebugRuntimeError, match=r"nothing was done.*training_job_end.ts"):
        compact_run(store, remove_orphans=True)


def test_two_at_once_without_locks() -> None:
    """Both have listed the same files; neither loses a row."""

    class Remote(MemoryStore):
        """As an object store is: without locks."""

        remote = True
        other = False

        def write(self, key: str, chunks: object) -> None:
            if key.startswith("index/") and self.other:
                self.other = False
                # Another process is faster, and removes the old ones.
                compact_run(self)
            super().write(key, chunks)  # type: ignore[arg-type]

    store = Remote()
    leave_run(store, 5, ("a",))
    rows = rows_of(store)
    store.other = True
    compact_run(store)
    assert rows_of(store) == rows
    compact_run(store)
    assert len(index_sizes(store)) == 1
    assert rows_of(store) == rows


def test_a_live_worker_is_left_alone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    leave_run(store)
    before = index_sizes(store)
    claim = WriterLock(store, "b")
    claim.take()
    with pytest.raises(SMDebugRuntimeError, match=r"a live .* as b.*when the job has ended"):
        compact_run(store)
    # Not even the files of the other worker.
    assert index_sizes(store) == before
    claim.release()
    # One that has not published anything yet is at work as well.
    other = WriterLock(store, "c")
    other.take()
    with pytest.raises(SMDebugRuntimeError, match="as c"):
        compact_run(store)
    other.release()
    compact_run(store)
    # The locks are released.
    claim.take()
    claim.release()


def test_damaged_file_is_not_changed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    leave_run(store, workers=("a",))
    path = sorted((tmp_path / "index").rglob("*.parquet"))[3]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    before = index_sizes(store)
    with pytest.raises(IndexReaderException, match=path.name):
        compact_run(store)
    assert index_sizes(store) == before


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_orphans(format: str, tmp_path: Path) -> None:
    make_run(tmp_path, range(4), format=format)
    store = LocalStore(tmp_path)
    whole = set(store.list("events/"))
    name = "000000000009-000007_worker_0" if format == "v2" else "000000000009_worker_0"
    orphan = tmp_path / f"events/000000000009/{name}.tfevents"
    orphan.parent.mkdir()
    orphan.write_bytes(bytes(10))
    temporary = tmp_path / "index/000000000/x.parquet.0123.tmp"
    temporary.write_bytes(bytes(5))
    rows = rows_of(store)
    assert compact_run(store).removed == []
    assert orphan.exists()
    done = compact_run(store, remove_orphans=True)
    assert done.removed_bytes == 15
    assert sorted(tmp_path / key for key in done.removed) == [orphan, temporary]
    assert not orphan.exists()
    assert not temporary.exists()
    assert set(store.list("events/")) == whole
    assert rows_of(store) == rows
    report = check_run(store)
    assert (report.damages, report.remarks) == ([], [])


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_nothing_is_removed_while_an_index_cannot_be_read(format: str, tmp_path: Path) -> None:
    make_run(tmp_path, range(4), format=format)
    path = sorted((tmp_path / "index").rglob("*.*"))[0]
    path.write_bytes(path.read_bytes()[:-5])
    before = sorted(LocalStore(tmp_path).list())
    with pytest.raises(IndexReaderException, match=path.name):
        compact_run(LocalStore(tmp_path), remove_orphans=True)
    locks = [key for key in LocalStore(tmp_path).list() if key.startswith("locks/")]
    assert sorted(LocalStore(tmp_path).list()) == sorted([*before, *locks])
