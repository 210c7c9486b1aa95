"""Joining the small index files of a run into large ones, and what else a crash leaves behind."""

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
from smdebug.storage.v1.index import parse_classic
from smdebug.storage.v2.index import SCHEMA, encode_index, newest_rows
from smdebug.storage.v2.index_file import ColumnCache, IndexFile
from smdebug.storage.writer_lock import WriterLock, WriterLocked, locked_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from smdebug.storage.stores.base import Store

# Index files of at least this many rows are left as they are.
ROWS_PER_FILE = 1 << 20
# In a store without locks two may compact at once; numbers so far apart keep their files apart.
_FURTHEST_SEQ = 100_000
_TRIES = 5


@dataclass
class Compaction:
    """What became of the index files of a run.

    Attributes:
        files_before: how many there were of format v2.
        files_after: how many there are.
        bytes_before: what they weighed.
        bytes_after: what they weigh.
        removed: other files that were removed, which nothing leads to.
        removed_bytes: what those weighed.
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
    """Joins the small index files of all workers of a run whose job has ended.

    A job does so itself when it is closed. Whenever this is interrupted, the run is readable, and
    what is left is done by the next call.

    Args:
        store: where the run is kept.
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
    # Asked of all first: a job that begins must not wait for who will not do anything.
    for worker in writers:
        _free(store, worker, WriterLock.check)
    with ExitStack() as claims:
        for worker in writers:
            claims.callback(_free(store, worker, WriterLock.take).release)
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
            # Without locks somebody else may be at it. What that wrote is joined now.
            continue
    raise SMDebugRuntimeError(f"{store.url}: index files of {worker} vanish while they are joined")


def compact(store: Store, worker: str, next_seq: Callable[[], int]) -> Compaction:
    """Joins small index files of one worker: writes the new one, then deletes the old ones.

    Args:
        store: where the run is kept.
        worker: the worker, whose files nobody else may be changing.
        next_seq: gives sequence numbers that no file has.

    Raises:
        IndexReaderException: a file is damaged.
    """
    done = Compaction()
    group: list[_Piece] = []
    rows = 0
    for key, name in _index_files(store):
        if name.seq is None or name.worker != worker:
            continue
        # Read at once: the metadata of hundreds of files weighs more than their rows.
        file = IndexFile(store, key, name, ColumnCache(0))
        file.check_name(name)
        done += Compaction(1, 1, file.nbytes, file.nbytes)
        if file.metadata.num_rows >= ROWS_PER_FILE // 2:
            continue
        if rows + file.metadata.num_rows > ROWS_PER_FILE:
            done += _join(store, worker, group, next_seq)
            group, rows = [], 0
        present = file.present_columns()
        table = file.table([column for column in SCHEMA.names if column in present])
        group.append(_Piece(key, int(file.step_range()[0]), table, file.nbytes, file.run))
        rows += table.num_rows
    done += _join(store, worker, group, next_seq)
    return done


class _Piece(NamedTuple):
    """An index file that is to be joined with others."""

    key: str
    first_step: int
    table: pa.Table
    nbytes: int
    run: str | None


def _join(
    store: Store, worker: str, group: list[_Piece], next_seq: Callable[[], int]
) -> Compaction:
    """Joins files; returns by how much their number and size have changed."""
    if len(group) < 2:
        return Compaction()
    runs = {piece.run for piece in group}
    if len(runs) > 1:
        raise IndexReaderException(
            f"{group[0].key} and others are index files of several runs, so they are not joined; "
            "`smdebug check` says which"
        )
    tables = [piece.table for piece in group]
    table = newest_rows(pa.concat_tables(tables, promote_options="default"))
    first = min(piece.first_step for piece in group)
    data = encode_index(table, runs.pop())
    store.write(index_key(first, next_seq(), worker), [data])
    for piece in group:
        store.delete(piece.key)
    saved = sum(piece.nbytes for piece in group) - len(data)
    return Compaction(files_after=1 - len(group), bytes_after=-saved)


def run_of_index(store: Store, key: str, name: IndexName) -> str | None:
    """The name of the run that an index file belongs to; None when it says none.

    Raises:
        IndexReaderException: the file is damaged.
        KeyError: it is gone.
    """
    if name.seq is None:
        return parse_classic(bytes(store.read(key)), key, name).run
    return IndexFile(store, key, name, ColumnCache(0)).run


def last_seq(store: Store, worker: str) -> int:
    """The highest sequence number the run holds for a worker; orphaned event files count."""
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
            "index is left alone; compact it when the job has ended: one that is closed does so "
            "itself"
        ) from error
    return lock


def _index_files(store: Store) -> Iterator[tuple[str, IndexName]]:
    for key in list(store.list(INDEX_PREFIX)):
        name = parse_index_key(key)
        if name is not None:
            yield key, name


# ---- what nothing leads to


def _orphans(store: Store) -> list[str]:
    """Event files that no row names, and temporary files.

    Raises:
        IndexReaderException: not every index file can be read, so that nobody knows.
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
    """The event files that an index file leads to.

    Raises:
        IndexReaderException: the index file is damaged.
        KeyError: it is gone.
    """
    if name.attempt:
        return set()
    if name.seq is None:
        file = parse_classic(read_small(store, key), key, name).event_file
        return set() if file is None else {file}
    table = IndexFile(store, key, name, ColumnCache(0)).table(["event_file"])
    return {each for each in table["event_file"].unique().to_pylist() if each is not None}


def _remove(store: Store, keys: list[str], done: Compaction) -> None:
    for key in keys:
        done.removed_bytes += len(store.read(key))
        store.delete(key)
        done.removed.append(key)
