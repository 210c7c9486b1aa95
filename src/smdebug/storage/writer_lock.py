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
from smdebug.storage.locks import LOCKS_PREFIX, SUFFIX, has_locks, lock, lock_key, unlock
from smdebug.storage.stores.local import LocalStore

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Store

# Who asks whether a run is being written has its lock for a moment, and is no writer. On a busy
# machine moments are long, for it and for who has the lock and has not yet said who it is.
_PATIENCE, _PAUSE = 0.5, 0.01
# Who joins its index files has it for longer, and is none either: a job that begins waits.
_JOINING, _JOINING_PATIENCE = "joins index files", 120.0


class WriterLocked(SMDebugRuntimeError):
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


class WriterLock:
    """The right to write to a run as one worker.

    Args:
        store: where the run is.
        worker: the name of the worker.
        joins: the claim is for joining index files, and over soon: others wait for it.
    """

    def __init__(self, store: Store, worker: str, joins: bool = False) -> None:
        self._file: int | None = None
        self._store = store if isinstance(store, LocalStore) and has_locks(store) else None
        self._key = lock_key(worker)
        self._worker = worker
        self._joins = joins

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
        except WriterLocked as error:
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
            os.ftruncate(file, 0)
            mark = f"{os.getpid()} {_JOINING if self._joins else ''}".rstrip()
            os.write(file, f"{mark}\n".encode())
        except BaseException:
            # Ctrl-C included: this process would stand in its own way.
            os.close(file)
            raise
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

    def __del__(self) -> None:
        # One that was taken and, by Ctrl-C, given to nobody.
        self.leave()

    def _lock(self, file: int) -> None:
        began = since = time.monotonic()
        before = b""
        # On a file system without locks nothing can be said, so nothing is claimed.
        while lock(file) is False:
            text, now = os.pread(file, 40, 0), time.monotonic()
            if text != before:
                # Somebody else has it now, who may be there for a moment as well.
                before, since = text, now
            owner, _, what = text.decode(errors="replace").strip().partition(" ")
            if now - since >= _PATIENCE and (what != _JOINING or now - began >= _JOINING_PATIENCE):
                self._refuse(owner or "unknown", what)
            time.sleep(_PAUSE)

    def _refuse(self, owner: str, what: str) -> None:
        assert self._store is not None
        run = self._store.root
        if what == _JOINING:
            raise WriterLocked(
                owner,
                f"process {owner} has been joining the index files of {run} for "
                f"{_JOINING_PATIENCE:g} seconds; expected nobody to be at them when a job begins: "
                "wait until it has ended, or give this one another out_dir",
            )
        raise WriterLocked(
            owner,
            f"another live process (number {owner}) writes to {run} as "
            f"{self._worker}; expected each process to have its own out_dir or worker: give "
            "this one another out_dir, or another name with worker=...",
        )
