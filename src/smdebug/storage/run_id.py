"""Run ID: distinguishes the files of a run from those that another run left in its directory.

Every worker draws a random ID when it starts, and stores it in its collections file and all of its
index files. A job that resumes a run keeps its ID.
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

    # Reads the run ID of an index file.
    ReadRun = Callable[[Store, str, IndexName], str | None]


class RunId:
    """The run ID of a worker that writes.

    Args:
        store: where the run is.
        worker: the name of the worker.
        read_run: reads the run ID of an index file.
    """

    def __init__(self, store: Store, worker: str, read_run: ReadRun) -> None:
        self._store, self._worker, self._read_run = store, worker, read_run
        self._searched = self._started = False
        self._run: str | None = None

    def find(self) -> str | None:
        """Return the run ID; None if the run has none yet."""
        if not self._searched:
            self._started, self._run = self._stored()
            self._searched = True
        return self._run

    def make(self) -> str | None:
        """Return the run ID, drawn now if the run starts; None for an old run without one."""
        if self.find() is None and not self._started:
            self._run, self._started = secrets.token_hex(8), True
        return self._run

    def published(self) -> None:
        """Record that there are files: a run without an ID stays without one."""
        self._started = True

    def _stored(self) -> tuple[bool, str | None]:
        """Return whether a previous job started the run, and its run ID."""
        known = _stored_run(self._store, self._worker)
        if not isinstance(known, Exception):
            return True, known
        # The collections file is missing or damaged; every index file has the ID as well.
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


class RunIds:
    """The run IDs of all workers, from their collections files.

    Args:
        store: where the run is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, str | None] = {}

    def take(self, worker: str, run: str | None) -> None:
        """Store the run ID of a collections file."""
        self._known[worker] = run

    def check(self, key: str, worker: str, run: str | None) -> None:
        """Compare the run ID of an index file with the collections file of its worker.

        A damaged collections file is ignored: reading it raises an error elsewhere.

        Raises:
            IndexReaderException: the index file belongs to another run.
        """
        if worker in self._known and self._known[worker] == run:
            return
        known = _stored_run(self._store, worker)
        if isinstance(known, KeyError) and run is not None:
            raise IndexReaderException(
                f"{key}: the file belongs to run {run}, and there is no collections file of worker "
                f"{worker}: one of them was removed, or the file was left here by another run"
            )
        if isinstance(known, Exception):
            return
        self._known[worker] = known
        if known != run:
            raise IndexReaderException(
                f"{key}: the file belongs to run {run or 'without an ID'}, the collections file of "
                f"worker {worker} to run {known or 'without an ID'}: one of them was left here by "
                "another run"
            )


def run_ids(store: Store) -> Iterator[str | None]:
    """Yield the run IDs in the collections files of all workers.

    Raises:
        IndexReaderException: one of them is damaged.
    """
    for key in store.list(COLLECTIONS_PREFIX):
        if parse_collections_worker(key) is not None:
            with suppress(KeyError):
                yield decode_collections(read_json_text(store, key), key).run


def _stored_run(store: Store, worker: str) -> str | Exception | None:
    """Return the run ID in the collections file of a worker, or the error of reading it."""
    failure: Exception = KeyError(worker)
    for key in dict.fromkeys(collections_key(worker, v1) for v1 in (False, True)):
        try:
            return decode_collections(read_json_text(store, key), key).run
        except KeyError:
            continue
        except IndexReaderException as error:
            failure = error
    return failure
