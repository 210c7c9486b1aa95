"""Locks of the operating system on files in a run: whether somebody lives who writes to it.

A lock ends with its process, however that ends. Runs in object stores have none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote

from smdebug.exceptions import SMDebugError
from smdebug.storage.stores.local import LocalStore

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Store

try:
    import fcntl
except ImportError:  # pragma: no cover - not on Windows
    fcntl = None  # type: ignore[assignment]

LOCKS_PREFIX = "locks/"
SUFFIX = ".lock"


def lock_key(worker: str) -> str:
    """The file of a run that a worker locks."""
    return f"{LOCKS_PREFIX}{quote(worker, safe='')}{SUFFIX}"


def has_locks(store: Store) -> bool:
    """Whether files of a store can be locked."""
    return fcntl is not None and isinstance(store, LocalStore)


def lock(file: int, shared: bool = False) -> bool | None:
    """Locks an open file, without waiting.

    Args:
        file: its descriptor.
        shared: beside others who only look; a writer's lock is not shared.

    Returns:
        Whether it is locked now; None on a file system without locks.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def unlock(file: int) -> None:
    """Gives a lock up, also for forked children that still have the file open."""
    fcntl.flock(file, fcntl.LOCK_UN)


def is_written(store: Store) -> bool | None:
    """Whether a process lives that writes to a run; None where nothing can be said about it.

    A lock is tried, together with others who look, and given back at once: a writer that comes at
    this moment tries again.
    """
    answers: list[bool | None] = []
    for key in store.list(LOCKS_PREFIX):
        if not isinstance(store, LocalStore) or fcntl is None or not key.endswith(SUFFIX):
            continue
        try:
            file = store.open(key, os.O_RDONLY)
        except (OSError, KeyError, SMDebugError):
            answers.append(None)
            continue
        try:
            free = lock(file, shared=True)
            answers.append(None if free is None else not free)
        finally:
            os.close(file)
    if True in answers:
        return True
    return None if None in answers or not answers else False
