"""Check of a run: every checksum, every row of the index, every record."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from smdebug.exceptions import SMDebugError, StoreError
from smdebug.storage.check.files import FileCheck
from smdebug.storage.check.record_scan import ChunkedFile, scan_records
from smdebug.storage.check.report import CheckReport
from smdebug.storage.check.rows import RowCheck
from smdebug.storage.format.keys import (
    COLLECTIONS_PREFIX,
    END_KEY,
    INDEX_PREFIX,
    event_format,
    parse_index_key,
)
from smdebug.storage.raw_tensors import each
from smdebug.storage.stores.local import temporary_files
from smdebug.storage.untrusted.limits import read_small

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.storage.format.keys import IndexName
    from smdebug.storage.stores.base import Store

# How often to list again when compaction has replaced files.
_TRIES = 5
# How many small index files of format v1 are fetched at once.
_TOGETHER = 64
_ORPHANS = "records that no row names: left by a crash, or saved again since"
_LOST = "records that no readable row names: index files are damaged"
_YET = "records that no row names (yet): the run is not finished"
_TEMPORARY = "temporary files, which a crash has left behind"
_FOREIGN = "files that are none of a run"


def check_run(store: Store, tell: Callable[[int, int], None] | None = None) -> CheckReport:
    """Check every file of a run; damage does not end the check.

    The run may be written meanwhile: rows of files that compaction removes are checked in the
    files that replace them.

    Args:
        store: where the run is.
        tell: called with the number of files checked, and of all of them.

    Raises:
        StoreError: an object store gives no answer.

    Example:
        >>> from smdebug.storage.stores.memory import MemoryStore
        >>> from smdebug.testing import make_run
        >>> store = MemoryStore()
        >>> run = make_run(store, steps=[0, 1])
        >>> report = check_run(store)
        >>> report.damages, report.rows, report.records
        ([], 4, 2)
    """
    began = time.monotonic()
    check = _Check(store, tell)
    check.run()
    check.report.seconds = time.monotonic() - began
    return check.report


class _Check:
    def __init__(self, store: Store, tell: Callable[[int, int], None] | None) -> None:
        self.report = CheckReport()
        self._store = store
        self._tell = tell
        self._rows = RowCheck(store, self.report)
        self._files = FileCheck(store, self.report)
        self._seen: set[str] = set()
        self._total = 0
        self._unnamed = _ORPHANS

    def run(self) -> None:
        unfinished = temporary_files(self._store)
        keys = list(self._store.list())
        self._total = len(keys)
        self.report.finished = END_KEY in keys
        events = [key for key in keys if event_format(key) is not None]
        self._check_index([key for key in keys if key.startswith(INDEX_PREFIX)], events)
        if any(damage.file.startswith(INDEX_PREFIX) for damage in self.report.damages):
            self._unnamed = _LOST
        elif not self.report.finished:
            self._unnamed = _YET
        for key in events:
            self._guarded(key, self._check_events)
        known = {*self._seen, *events}
        for key in keys:
            if key not in known:
                self._guarded(key, self._check_other)
        self._check_workers()
        # Files that were being written are complete by now.
        for key in sorted(set(unfinished) & set(temporary_files(self._store))):
            self._guarded(key, self._remark_temporary, counts=False)

    # ---- the index

    def _check_index(self, keys: list[str], events: list[str]) -> None:
        for _ in range(_TRIES):
            vanished = self._check_new([key for key in keys if key not in self._seen])
            unnamed = not all(self._rows.names(key) for key in events)
            if not vanished and not unnamed:
                return
            # A live job publishes index files after their event files, and compacts them.
            keys = list(self._store.list(INDEX_PREFIX))
            if self._seen.issuperset(key for key in keys if parse_index_key(key) is not None):
                return

    def _check_new(self, keys: list[str]) -> bool:
        """Check index files; return whether some of them have vanished."""
        before = self._total
        named = [(key, name) for key in keys if (name := parse_index_key(key)) is not None]
        self._seen.update(key for key, _ in named)
        for key, name in named:
            if name.seq is not None:
                self._guarded(key, partial(self._rows.check_file, name=name))
        v1_files = [item for item in named if item[1].seq is None]
        for begin in range(0, len(v1_files), _TOGETHER):
            part = v1_files[begin : begin + _TOGETHER]
            for (key, name), data in zip(part, self._fetched(part), strict=True):
                self._guarded(key, partial(self._check_v1, name=name, data=data))
        return self._total < before

    def _fetched(self, items: list[tuple[str, IndexName]]) -> list[bytes | Exception]:
        def read(item: tuple[str, IndexName]) -> bytes | Exception:
            try:
                return read_small(self._store, item[0])
            except StoreError:
                raise
            except (KeyError, SMDebugError, OSError) as error:
                return error

        return each(self._store, read, items)

    def _check_v1(self, key: str, name: IndexName, data: bytes | Exception) -> None:
        if isinstance(data, Exception):
            raise data
        # A step that was saved again has an empty marker file with its index file.
        if not name.attempt:
            self._rows.check_v1(key, name, data)
        elif data:
            self.report.add(key, "the file must be empty", step=name.step, worker=name.worker)

    # ---- event files

    def _check_events(self, key: str) -> None:
        v1 = event_format(key) == "v1"
        file = ChunkedFile(self._store, key)
        for start, end in self._rows.gaps(key):
            for record in scan_records(file, start, end, v1):
                if record.wrong is not None:
                    what = f"{record.wrong}; no row names it"
                    self.report.add(key, what, offset=record.offset)
                    continue
                self.report.records += 1
                self.report.bytes += record.size
                self.report.remark(self._unnamed, key, size=record.size)

    # ---- everything else

    def _check_other(self, key: str) -> None:
        if not self._files.check(key):
            self.report.remark(_FOREIGN, key)

    def _remark_temporary(self, key: str) -> None:
        self.report.remark(_TEMPORARY, key, size=len(self._store.read(key)))

    def _check_workers(self) -> None:
        """Check that the collections files of all workers exist: a trial needs them."""
        found = len(self._files.workers)
        if found >= max(self._files.promised, 1):
            return
        missing = sorted(self._rows.workers - self._files.workers)
        what = (
            f"collections files of {max(self._files.promised, 1)} workers are expected, {found} "
            f"are there{f'; missing: {missing[0]}' if missing else ''}"
        )
        if self.report.finished or self._rows.workers:
            self.report.add(COLLECTIONS_PREFIX, what)
        else:
            self.report.remark(what, COLLECTIONS_PREFIX)

    def _guarded(self, key: str, check: Callable[[str], None], counts: bool = True) -> None:
        """Check a file; an error is reported and does not end the check."""
        try:
            check(key)
        except KeyError:
            # It was removed after it was listed.
            self._total -= 1
            return
        except StoreError:
            raise
        except (SMDebugError, OSError) as error:
            self.report.add(key, str(error).removeprefix(f"{key}: "))
        self.report.files += counts
        if self._tell is not None:
            self._tell(min(self.report.files, self._total), self._total)
