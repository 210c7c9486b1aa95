"""One live process per worker of a run.

A lock of the operating system on a file in the run: it ends with the process, however that ends,
so what a crashed run leaves behind never stops the next one. Runs in object stores have no locks.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING
from urllib.parse import unquote

from smdebug.exceptions import SMDebugRuntimeError
from smdebug.storage.local import LocalStore
from smdebug.storage.locks import LOCKS_PREFIX, SUFFIX, has_locks, lock, lock_key, unlock

if TYPE_CHECKING:
    from smdebug.storage.store import Store

# Who asks whether a run is being written has its lock for a moment, and is no writer.
_TRIES, _PAUSE = 5, 0.01


class Claimed(SMDebugRuntimeError):
    """Another live process writes as this worker.

    Attributes:
        process: its number.
    """

    def __init__(self, process: str, message: str) -> None:
        self.process = process
        super().__init__(message)


def claimed_workers(store: Store) -> list[str]:
    """The workers that have ever claimed to write to a run; the claims may be over."""
    names = [key.removeprefix(LOCKS_PREFIX) for key in store.list(LOCKS_PREFIX)]
    return [unquote(name.removesuffix(SUFFIX)) for name in names if name.endswith(SUFFIX)]


class Claim:
    """The right to write to a run as one worker.

    Args:
        store: where the run is.
        worker: the name of the worker.
    """

    def __init__(self, store: Store, worker: str) -> None:
        self._store = store if isinstance(store, LocalStore) and has_locks(store) else None
        self._key = lock_key(worker)
        self._worker = worker
        self._file: int | None = None

    def check(self) -> None:
        """Raises `SMDebugRuntimeError` when another live process writes as this worker.

        Creates nothing.

        Raises:
            SMDebugValueError: what lies there is no file of the run.
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
        """The number of the live process that writes as this worker; None when there is none."""
        try:
            self.check()
        except Claimed as error:
            return error.process
        return None

    def take(self) -> None:
        """Takes the claim; it is given up with `release` or with the end of the process.

        Raises:
            SMDebugRuntimeError: another live process writes as this worker.
            SMDebugValueError: what lies there is no file of the run.
        """
        if self._store is None or self._file is not None:
            return
        # A link there would have somebody's file emptied below. Not inherited by programs that
        # training starts: they would hold the claim after its end.
        file = self._store.open(self._key, os.O_RDWR | os.O_CREAT)
        try:
            self._lock(file)
        except SMDebugRuntimeError:
            os.close(file)
            raise
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        self._file = file

    def release(self) -> None:
        """Gives the claim up. The file stays: removing it could remove a successor's."""
        if self._file is not None:
            # Said explicitly: a forked child that still lives has the file open too.
            unlock(self._file)
            self.leave()

    def leave(self) -> None:
        """Lets go of the file in a forked child; the claim stays the parent's."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _lock(self, file: int) -> None:
        for left in reversed(range(_TRIES)):
            # On a file system without locks nothing can be said, so nothing is claimed.
            if lock(file) is not False:
                return
            if left:
                time.sleep(_PAUSE)
        owner = os.pread(file, 20, 0).decode(errors="replace").strip() or "unknown"
        assert self._store is not None
        raise Claimed(
            owner,
            f"another live process (number {owner}) writes to {self._store.root} as "
            f"{self._worker}; expected each process to have its own out_dir or worker: give "
            "this one another out_dir, or another name with worker=...",
        )
