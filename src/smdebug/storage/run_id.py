"""The name of a run: a file that another run has left here must not speak for this one.

Every worker draws a name when it begins, which its collections file and all its index files carry.
A job that goes on with a run goes on with its name.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from smdebug.exceptions import IndexReaderException, SMDebugError
from smdebug.storage.format.collections_file import decode_collections
from smdebug.storage.format.keys import (
    COLLECTIONS_PREFIX,
    INDEX_PREFIX,
    collections_key,
    parse_collections_worker,
    parse_index_key,
)
from smdebug.storage.untrusted.limits import read_json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from smdebug.storage.format.keys import IndexName
    from smdebug.storage.stores.base import Store

    # Reads the name of a run off an index file.
    ReadRun = Callable[[Store, str, IndexName], str | None]


class RunId:
    """The name under which a worker writes.

    Args:
        store: where the run is kept.
        worker: who writes.
        read_run: reads the name off an index file.
    """

    def __init__(self, store: Store, worker: str, read_run: ReadRun) -> None:
        self._store, self._worker, self._read_run = store, worker, read_run
        self._looked = self._begun = False
        self._run: str | None = None

    def find(self) -> str | None:
        """What the run is called so far; None when it has no name."""
        if not self._looked:
            self._begun, self._run = self._earlier()
            self._looked = True
        return self._run

    def make(self) -> str | None:
        """What the run is called, named now if it begins; None for one that began without."""
        if self.find() is None and not self._begun:
            self._run, self._begun = secrets.token_hex(8), True
        return self._run

    def published(self) -> None:
        """Says that there are files now: those without a name stay without."""
        self._begun = True

    def _earlier(self) -> tuple[bool, str | None]:
        """Whether an earlier job has begun the run, and what it called it."""
        known = _stored_run(self._store, self._worker)
        if not isinstance(known, Exception):
            return True, known
        # The collections file is not there or damaged; every index file says it as well.
        found = False
        for key in list(self._store.list(INDEX_PREFIX)):
            name = parse_index_key(key)
            if name is None or name.worker != self._worker or name.attempt:
                continue
            try:
                return True, self._read_run(self._store, key, name)
            except (KeyError, SMDebugError):
                found = True
        return found, None


class RunNames:
    """The names of the runs of all workers, by their collections files.

    Args:
        store: where the run is kept.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, str | None] = {}

    def take(self, worker: str, run: str | None) -> None:
        """Takes over what a collections file says."""
        self._known[worker] = run

    def check(self, key: str, worker: str, run: str | None) -> None:
        """Compares what an index file says with the collections file of its worker.

        A collections file that is damaged says nothing; whoever reads it is told.

        Raises:
            IndexReaderException: the index file is of another run.
        """
        if worker in self._known and self._known[worker] == run:
            return
        known = _stored_run(self._store, worker)
        if isinstance(known, KeyError) and run is not None:
            raise IndexReaderException(
                f"{key}: the file is of run {run}, and there is no collections file of worker "
                f"{worker}: one of them was removed, or the file was left here by another run"
            )
        if isinstance(known, Exception):
            return
        self._known[worker] = known
        if known != run:
            raise IndexReaderException(
                f"{key}: the file is of run {run or 'without a name'}, the collections file of "
                f"worker {worker} of run {known or 'without a name'}: one of them was left here "
                "by another run"
            )


def run_names(store: Store) -> Iterator[str | None]:
    """What the collections files call the run, each worker its part.

    Raises:
        IndexReaderException: one of them is damaged.
    """
    for key in store.list(COLLECTIONS_PREFIX):
        if parse_collections_worker(key) is not None:
            with suppress(KeyError):
                yield decode_collections(read_json_text(store, key), key).run


def _stored_run(store: Store, worker: str) -> str | Exception | None:
    """What the collections file of a worker says, or why it does not."""
    failure: Exception = KeyError(worker)
    for key in dict.fromkeys(collections_key(worker, classic) for classic in (False, True)):
        try:
            return decode_collections(read_json_text(store, key), key).run
        except KeyError:
            continue
        except IndexReaderException as error:
            failure = error
    return failure
