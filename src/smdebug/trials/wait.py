"""Finding the run behind a path, and waiting for a job that has not begun to write."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from smdebug.config import validation
from smdebug.exceptions import MissingCollectionFiles, TrialNotFound

if TYPE_CHECKING:
    from smdebug.storage.reader import RunReader
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.trials")

# How often somebody who waits looks again.
POLL_SECONDS = 0.25
_DEFAULT_WAIT = 60.0
# What only a run has; what is found soonest comes first.
_PARTS = ("collections/", "training_job_end.ts", "claim.smd", "index/", "events/", "locks/")


def wait_for_job(reader: RunReader, wait_seconds: float | None) -> None:
    """Returns when the collections files of all workers are there.

    Args:
        reader: of the run.
        wait_seconds: how long to wait; a minute when None.

    Raises:
        MissingCollectionFiles: the job has ended, or the time is over.
    """
    limit = (
        _DEFAULT_WAIT if wait_seconds is None else validation.seconds("wait_seconds", wait_seconds)
    )
    deadline = time.monotonic() + limit
    told = False
    while True:
        finished = reader.finished()
        found = reader.collections()
        wanted = promised_workers(found)
        if len(found) >= wanted:
            return
        if finished or time.monotonic() >= deadline:
            waited = f"after waiting {limit:g} s; " if limit else ""
            state = "the job has ended; " if finished else waited
            raise MissingCollectionFiles(
                f"{reader.store.url}: {state}expected the collections files of {wanted} "
                f"worker(s), got {', '.join(sorted(found)) or 'none'}"
            )
        if not told:
            logger.warning("waiting up to %g s for a job to begin in %s", limit, reader.store.url)
            told = True
        pause(POLL_SECONDS)


def require_place(store: Store, wait_seconds: float | None) -> None:
    """Refuses a place that is not there, or holds something else than a run.

    Args:
        store: the place.
        wait_seconds: as `wait_for_job` takes it.

    Raises:
        TrialNotFound: it is such a place.
        StoreError: it is an object store that gives no answer, or says no.
    """
    may_come = wait_seconds is not None
    if not store.exists():
        # A directory may still be made; a bucket that is not there is a wrong name.
        if may_come and not store.remote:
            return
        raise TrialNotFound(
            f"{store.url} does not exist; expected the out_dir of a hook. "
            "For a job that is yet to make it, pass wait_seconds"
        )
    if may_come or any(next(store.list(part), None) for part in _PARTS):
        return
    other = store.first()
    # A part of a run that is listed as empty is being written.
    if other is not None and f"{other.partition('/')[0]}/" not in _PARTS:
        raise TrialNotFound(
            f"{store.url} is not a run: it holds {other}, but no collections, events or index"
        )


def promised_workers(collections: dict[str, dict[str, Any]]) -> int:
    """How many workers a run has, by what its collections files say."""
    return max((_num_workers(content) for content in collections.values()), default=1)


def _num_workers(content: dict[str, Any]) -> int:
    meta = content.get("_meta")
    number = meta.get("num_workers", 1) if isinstance(meta, dict) else 1
    return number if isinstance(number, int) else 1


def pause(seconds: float) -> None:
    """Waits; a Ctrl-C gets through."""
    threading.Event().wait(seconds)
