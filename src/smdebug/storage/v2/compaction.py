"""Compaction: merges small index files of a run, and removes what a crash left."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from smdebug.exceptions import IndexReaderException, SMDebugError, SMDebugRuntimeError
from smdebug.storage.arrow import pa
from smdebug.storage.format.keys import (
    END_KEY,
    EVENTS_PREFIX,
    INDEX_PREFIX,
    IndexName,
    index_key,
    parse_event_seq,
    parse_index_key,
)
from smdebug.storage.stores.local import temporary_files
from smdebug.storage.untrusted.limits import read_small
from smdebug.storage.v1.index import parse_v1_step
from smdebug.storage.v2.index import SCHEMA, encode_index, newest_rows
from smdebug.storage.v2.index_file import ColumnCache, IndexFile
from smdebug.storage.writer_lock import WriterLock, WriterLocked, locked_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from smdebug.storage.stores.base import Store

# Index files of at least this many rows are left as they are.
ROWS_PER_FILE = 1 << 20
# In a store without locks two processes may compact at once: a random distance of up to this
# many keeps their sequence numbers apart.
_FURTHEST_SEQ = 100_000
_TRIES = 5


@dataclass
class Compaction:
    """Result of a compaction.

    Attributes:
        files_before: how many index files of format v2 there were.
        files_after: how many there are.
        bytes_before: their size before.
        bytes_after: their size now.
        removed: orphaned files that were removed.
        removed_bytes: the size of those.
    """

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    removed: list[str] = field(default_factory=list)
    removed_bytes: int = 0

    def __iadd__(self, other: Compaction) -> Compaction:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self


def compact_run(
    store: Store,
    remove_orphans: bool = False,
    tell: Callable[[int, int], None] | None = None,
) -> Compaction:
    """Merge the small index files of all workers of a run whose job has ended.

    A job does so itself when it is closed. If this is interrupted, the run is readable, and the
    next call completes it.

    Args:
        store: where the run is.
        remove_orphans: also remove event files that no row names, and temporary files.
        tell: called with the number of workers done, and of all of them.

    Raises:
        SMDebugRuntimeError: a live process writes to the run, or may.
        IndexReaderException: an index file is damaged; its worker's files stay as they are.

    Example:
        >>> from smdebug.storage.stores.memory import MemoryStore
        >>> from smdebug.testing import make_run
        >>> store = MemoryStore()
        >>> run = make_run(store, steps=[0, 1], flush_every=1)
        >>> compact_run(store).files_after
        1
    """
    finished = next(iter(store.list(END_KEY)), None) is not None
    if remove_orphans and store.remote and not finished:
        raise SMDebugRuntimeError(
            f"{store.url} is not finished, and a store without locks cannot tell whether a job "
            "still writes to it, so nothing was done; compact it without removing anything, or "
            f"remove orphans when {END_KEY} is there"
        )
    names = [name for _, name in _index_files(store)]
    workers = sorted({name.worker for name in names if name.seq is not None})
    done = Compaction()
    writers = sorted({*locked_workers(store), *(name.worker for name in names)})
    # All are checked first: a job that starts must not wait for a compaction that cannot run.
    for worker in writers:
        _free(store, worker, WriterLock.check)
    with ExitStack() as locks:
        for worker in writers:
            locks.callback(_free(store, worker, WriterLock.take).release)
        for number, worker in enumerate(workers):
            done += _compact_again(store, worker)
            if tell is not None:
                tell(number + 1, len(workers))
        if remove_orphans:
            _remove(store, _orphans(store), done)
    return done


def _compact_again(store: Store, worker: str) -> Compaction:
    for _ in range(_TRIES):
        try:
            return compact(store, worker, _next_seqs(store, worker))
        except KeyError:
            # Without locks another process may compact, too: merge what it wrote.
            continue
    raise SMDebugRuntimeError(f"{store.url}: index files of {worker} vanish during compaction")


def compact(store: Store, worker: str, next_seq: Callable[[], int]) -> Compaction:
    """Merge small index files of one worker: write the new one, then delete the old ones.

    Args:
        store: where the run is.
        worker: the worker, whose files no other process may change meanwhile.
        next_seq: returns unused sequence numbers.

    Raises:
        IndexReaderException: a file is damaged.
    """
    done = Compaction()
    group: list[_SmallFile] = []
    rows = 0
    for key, name in _index_files(store):
        if name.seq is None or name.worker != worker:
            continue
        # Read at once: the metadata of hundreds of files takes more memory than their rows.
        file = IndexFile(store, key, name, ColumnCache(0))
        file.check_name(name)
        done += Compaction(1, 1, file.nbytes, file.nbytes)
        if file.metadata.num_rows >= ROWS_PER_FILE // 2:
            continue
        if rows + file.metadata.num_rows > ROWS_PER_FILE:
            done += _merge(store, worker, group, next_seq)
            group, rows = [], 0
        present = file.present_columns()
        table = file.table([column for column in SCHEMA.names if column in present])
        group.append(_SmallFile(key, int(file.step_range()[0]), table, file.nbytes, file.run))
        rows += table.num_rows
    done += _merge(store, worker, group, next_seq)
    return done


class _SmallFile(NamedTuple):
    """An index file to be merged with others."""

    key: str
    first_step: int
    table: pa.Table
    nbytes: int
    run: str | None


def _merge(
    store: Store, worker: str, group: list[_SmallFile], next_seq: Callable[[], int]
) -> Compaction:
    """Merge files; return the change of their number and size."""
    if len(group) < 2:
        return Compaction()
    runs = {part.run for part in group}
    if len(runs) > 1:
        raise IndexReaderException(
            f"{group[0].key} and others are index files of several runs, so they are not merged; "
            "`smdebug check` tells which"
        )
    tables = [part.table for part in group]
    table = newest_rows(pa.concat_tables(tables, promote_options="default"))
    first = min(part.first_step for part in group)
    data = encode_index(table, runs.pop())
    store.write(index_key(first, next_seq(), worker), [data])
    for part in group:
        store.delete(part.key)
    saved = sum(part.nbytes for part in group) - len(data)
    return Compaction(files_after=1 - len(group), bytes_after=-saved)


def run_of_index(store: Store, key: str, name: IndexName) -> str | None:
    """Return the run ID of an index file; None if it has none.

    Raises:
        IndexReaderException: the file is damaged.
        KeyError: it does not exist.
    """
    if name.seq is None:
        return parse_v1_step(bytes(store.read(key)), key, name).run
    return IndexFile(store, key, name, ColumnCache(0)).run


def last_seq(store: Store, worker: str) -> int:
    """Return the highest sequence number of a worker, including orphaned event files."""
    last = -1
    for _, name in _index_files(store):
        if name.worker == worker and name.seq is not None:
            last = max(last, name.seq)
    for key in store.list(EVENTS_PREFIX):
        seq = parse_event_seq(key, worker)
        last = last if seq is None else max(last, seq)
    return last


def _next_seqs(store: Store, worker: str) -> Callable[[], int]:
    last = last_seq(store, worker)

    def next_seq() -> int:
        nonlocal last
        last += 1 + (secrets.randbelow(_FURTHEST_SEQ) if store.remote else 0)
        return last

    return next_seq


def _free(store: Store, worker: str, ask: Callable[[WriterLock], None]) -> WriterLock:
    lock = WriterLock(store, worker, compacting=True)
    try:
        ask(lock)
    except WriterLocked as error:
        raise SMDebugRuntimeError(
            f"a live process (number {error.process}) writes to {store.url} as {worker}, so its "
            "index is not compacted. Compact it when the job has ended; a job that is closed does "
            "so itself."
        ) from error
    return lock


def _index_files(store: Store) -> Iterator[tuple[str, IndexName]]:
    for key in list(store.list(INDEX_PREFIX)):
        name = parse_index_key(key)
        if name is not None:
            yield key, name


# ---- orphans


def _orphans(store: Store) -> list[str]:
    """Return event files that no row names, and temporary files.

    Raises:
        IndexReaderException: an index file cannot be read, so this is unknown.
    """
    events = list(store.list(EVENTS_PREFIX))
    named: set[str] = set()
    for key, name in _index_files(store):
        try:
            named |= named_event_files(store, key, name)
        except SMDebugError as error:
            raise IndexReaderException(
                f"nothing was removed, because an index file cannot be read: {error}"
            ) from error
    return [*(key for key in events if key not in named), *temporary_files(store)]


def named_event_files(store: Store, key: str, name: IndexName) -> set[str]:
    """Return the event files that an index file names.

    Raises:
        IndexReaderException: the index file is damaged.
        KeyError: it does not exist.
    """
    if name.attempt:
        return set()
    if name.seq is None:
        file = parse_v1_step(read_small(store, key), key, name).event_file
        return set() if file is None else {file}
    table = IndexFile(store, key, name, ColumnCache(0)).table(["event_file"])
    return {each for each in table["event_file"].unique().to_pylist() if each is not None}


def _remove(store: Store, keys: list[str], done: Compaction) -> None:
    for key in keys:
        done.removed_bytes += len(store.read(key))
        store.delete(key)
        done.removed.append(key)
