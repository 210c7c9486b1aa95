"""One live process per worker of a run: `flock` on a file in the run.

The operating system removes a lock with its process, so a crashed job never stops the next one.
Object stores, and file systems without `flock`, have no locks: nothing is locked there.

The `filelock` package (tried: 4.2) does not fit: it locks exclusively only, so two readers that
check at once whether a run is being written would take each other for a writer; it opens a path,
which follows a link in place of the folder `locks`, and it needs write access for a check; and on
file systems without `flock` it falls back to a file that outlives a killed process.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from smdebug.exceptions import SMDebugError, SMDebugRuntimeError
from smdebug.storage.stores.local import LocalStore

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Store

try:
    import fcntl
except ImportError:  # pragma: no cover - not on Windows
    fcntl = None  # type: ignore[assignment]

LOCKS_PREFIX = "locks/"
_SUFFIX = ".lock"
# `is_written` holds a shared lock for a moment, and a new holder needs a moment to write its ID: a
# lock counts as that of a writer after this many seconds.
_PATIENCE, _POLL_INTERVAL = 0.5, 0.01
# The mark of a lock that is held for compaction, which ends soon: a job that starts waits for it.
_COMPACTING, _COMPACTING_PATIENCE = "joins index files", 120.0


class WriterLocked(SMDebugRuntimeError):
    """Another live process writes as this worker.

    Attributes:
        process: its process ID.
    """

    def __init__(self, process: str, message: str) -> None:
        self.process = process
        super().__init__(message)


def lock_key(worker: str) -> str:
    """Return the key of the file that a worker locks."""
    return f"{LOCKS_PREFIX}{quote(worker, safe='')}{_SUFFIX}"


def has_locks(store: Store) -> bool:
    """Whether workers of a run can be locked in this store."""
    return _lockable(store) is not None


def locked_workers(store: Store) -> list[str]:
    """Return the workers that have ever locked a run; the locks may be free."""
    names = [key.removeprefix(LOCKS_PREFIX) for key in store.list(LOCKS_PREFIX)]
    return [unquote(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX)]


def is_written(store: Store) -> bool | None:
    """Whether a live process writes to a run; None where that is unknown."""
    local = _lockable(store)
    if local is None:
        return None
    answers: list[bool | None] = []
    for key in local.list(LOCKS_PREFIX):
        if not key.endswith(_SUFFIX):
            continue
        try:
            file = local.open(key, os.O_RDONLY)
        except (OSError, KeyError, SMDebugError):
            answers.append(None)
            continue
        try:
            # Shared: other readers may check at the same time.
            free = _try_lock(file, fcntl.LOCK_SH)
            answers.append(None if free is None else not free)
        finally:
            os.close(file)
    if True in answers:
        return True
    return None if None in answers or not answers else False


class WriterLock:
    """The right to write to a run as one worker.

    Args:
        store: where the run is.
        worker: the name of the worker.
        compacting: the lock is for compaction, and free again soon: others wait for it.
    """

    def __init__(self, store: Store, worker: str, compacting: bool = False) -> None:
        self._file: int | None = None
        self._store = _lockable(store)
        self._key = lock_key(worker)
        self._worker = worker
        self._compacting = compacting

    def check(self) -> None:
        """Raise if another live process writes as this worker. Creates no file.

        Raises:
            WriterLocked: there is such a process.
            SMDebugValueError: the lock is not a regular file of the run.
        """
        if self._store is None:
            return
        try:
            file = self._store.open(self._key, os.O_RDWR)
        except KeyError:
            return
        try:
            self._lock(file)
        finally:
            os.close(file)

    def holder(self) -> str | None:
        """Return the ID of the live process that writes as this worker; None without one."""
        try:
            self.check()
        except WriterLocked as error:
            return error.process
        return None

    def take(self) -> None:
        """Take the lock, until `release` or the end of the process. Raises as `check` does."""
        if self._store is None or self._file is not None:
            return
        # The store follows no link, whose target would be truncated below, and the descriptor is
        # not inherited by programs that training starts: they would keep the lock.
        file = self._store.open(self._key, os.O_RDWR | os.O_CREAT)
        try:
            self._lock(file)
            os.ftruncate(file, 0)
            mark = f"{os.getpid()} {_COMPACTING if self._compacting else ''}".rstrip()
            os.write(file, f"{mark}\n".encode())
        except BaseException:
            # Also on Ctrl-C: an open descriptor would lock this process out.
            os.close(file)
            raise
        self._file = file

    def release(self) -> None:
        """Release the lock. The file stays: removing it could remove that of the next holder."""
        if self._file is not None:
            # Closing is not enough: a forked child that is alive has the file open too.
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self.leave()

    def leave(self) -> None:
        """Close the file in a forked child; the lock stays with the parent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        # After Ctrl-C between take() and the caller's assignment.
        self.leave()

    def _lock(self, file: int) -> None:
        started = unchanged_since = time.monotonic()
        last_mark = b""
        # None, on a file system without locks, ends the loop as well.
        while _try_lock(file, fcntl.LOCK_EX) is False:
            mark, now = os.pread(file, 40, 0), time.monotonic()
            if mark != last_mark:
                last_mark, unchanged_since = mark, now
            process, _, purpose = mark.decode(errors="replace").strip().partition(" ")
            compacting = purpose == _COMPACTING and now - started < _COMPACTING_PATIENCE
            if now - unchanged_since >= _PATIENCE and not compacting:
                raise WriterLocked(process or "unknown", self._message(process, purpose))
            time.sleep(_POLL_INTERVAL)

    def _message(self, process: str, purpose: str) -> str:
        assert self._store is not None
        if purpose == _COMPACTING:
            return (
                f"process {process} has been compacting the index of {self._store.root} for "
                f"{_COMPACTING_PATIENCE:g} seconds. Wait for its end, or use another out_dir."
            )
        return (
            f"another live process (number {process or 'unknown'}) writes to {self._store.root} "
            f"as {self._worker}. Use another out_dir, or another worker name (worker=...)."
        )


def _lockable(store: Store) -> LocalStore | None:
    return store if fcntl is not None and isinstance(store, LocalStore) else None


def _try_lock(file: int, kind: int) -> bool | None:
    """Lock an open file without waiting; None on a file system without locks."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
