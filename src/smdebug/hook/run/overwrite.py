"""Replace the run in a directory or bucket by a new one: `Hook(..., overwrite=True)`.

Only the chief worker deletes, when its hook is made. The other workers wait until the end marker
and their own collections file, which is deleted last, are gone; they delete nothing, so a worker
that starts late cannot remove what was written since. Files of a worker whose process holds its
writer lock are left alone: they belong to a worker of this job that started early.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from smdebug.exceptions import SMDebugRuntimeError
from smdebug.hook.worker import CHIEF_WORKER
from smdebug.storage.findings import FINDINGS_PREFIX
from smdebug.storage.format.keys import (
    COLLECTIONS_PREFIX,
    END_KEY,
    EVENTS_PREFIX,
    INDEX_PREFIX,
    TENSORBOARD_FOLDER,
    collections_key,
    parse_collections_worker,
    parse_event_worker,
    parse_index_key,
)
from smdebug.storage.stop_requests import list_stops
from smdebug.storage.writer_lock import WriterLock, has_locks, locked_workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.hook.worker import Worker
    from smdebug.storage.stores.base import Store

_logger = logging.getLogger("smdebug.hook")

# How long a worker waits for the chief worker to delete the old run, and between two checks.
_PATIENCE, _PAUSE = 300.0, 0.1


def overwrite_run(store: Store, out_dir: str, worker: Worker) -> None:
    """Delete the run in a store as its chief worker, or wait until the chief worker has done so.

    Raises:
        SMDebugRuntimeError: a live process writes to the run as this worker, or may do so; the
            chief worker has not deleted the run in time.
    """
    if not worker.chief:
        _wait_for_chief(store, out_dir, worker.name)
        return
    if not has_locks(store) and not _holds(store, END_KEY) and _holds(store, COLLECTIONS_PREFIX):
        raise SMDebugRuntimeError(
            f"Cannot overwrite {out_dir}: the run there has no end marker, so another process may "
            "be writing to it. Use another out_dir, delete it, or pass resume=True to continue it."
        )
    # Other processes wait for a lock of this kind: a worker without a known rank takes
    # itself for the chief worker.
    lock = WriterLock(store, worker.name, compacting=True)
    lock.take()
    try:
        live = {name for name in locked_workers(store) if _is_live(store, name, worker.name)}
        stages = [list(keys) for keys in _run_files(store, live)]
        with ThreadPoolExecutor(max(store.parallel, 1)) as pool:
            for keys in stages:
                list(pool.map(store.delete, keys))
    finally:
        lock.release()
    if any(stages):
        _logger.info("Deleted %d files of the run in %s", sum(map(len, stages)), out_dir)


def _run_files(store: Store, live: set[str]) -> Iterator[Iterator[str]]:
    """Yield the keys to delete in stages, so that no reader finds a finished run without its data.

    Only files with the names that hooks and rules give them; reports and the user's files stay.
    """
    yield store.list(END_KEY)
    indexes = ((key, parse_index_key(key)) for key in store.list(INDEX_PREFIX))
    yield (key for key, name in indexes if name is not None and name.worker not in live)
    events = ((key, parse_event_worker(key)) for key in store.list(EVENTS_PREFIX))
    yield (key for key, name in events if name is not None and name not in live)
    yield (key for key in store.list(FINDINGS_PREFIX) if key.endswith((".parquet", ".json")))
    yield iter(list_stops(store))
    yield (key for key in store.list(f"{TENSORBOARD_FOLDER}/") if key.endswith(".tfevents"))
    files = ((key, parse_collections_worker(key)) for key in store.list(COLLECTIONS_PREFIX))
    yield (key for key, name in files if name is not None and name not in live)


def _wait_for_chief(store: Store, out_dir: str, worker: str) -> None:
    keys = {END_KEY, *(collections_key(worker, v1) for v1 in (False, True))}
    begin = time.monotonic()
    waits = False
    while any(_holds(store, key) for key in keys):
        if _is_live(store, CHIEF_WORKER, worker):
            # It has deleted the run before it opened a new one.
            return
        if time.monotonic() - begin > _PATIENCE:
            if not any(_holds(store, key) for key in keys - {END_KEY}):
                # The end of this very job: the chief worker finished before this one started.
                return
            raise SMDebugRuntimeError(
                f"{out_dir} already contains a run, and {CHIEF_WORKER} has not deleted it within "
                f"{_PATIENCE:g} s. With overwrite=True every worker needs a hook with this out_dir."
            )
        if not waits:
            waits = True
            _logger.info("Waiting for %s to delete the run in %s", CHIEF_WORKER, out_dir)
        time.sleep(_PAUSE)


def _is_live(store: Store, worker: str, besides: str) -> bool:
    """Whether a live process writes as a worker other than this process."""
    return worker != besides and WriterLock(store, worker).holder() is not None


def _holds(store: Store, key: str) -> bool:
    return next(iter(store.list(key)), None) is not None
