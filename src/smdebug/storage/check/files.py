"""Checks of the files of a run other than index and event files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from smdebug.exceptions import IndexReaderException
from smdebug.storage.check.record_scan import ChunkedFile, scan_records
from smdebug.storage.end_marker import EndMarker
from smdebug.storage.findings import FINDINGS_PREFIX, check_file
from smdebug.storage.format.collections_file import decode_collections
from smdebug.storage.format.keys import COLLECTIONS_PREFIX, END_KEY, parse_collections_worker
from smdebug.storage.stop_requests import CONTROL_PREFIX, checked_request
from smdebug.storage.untrusted.limits import read_json_text, read_small
from smdebug.storage.writer_lock import LOCKS_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.storage.check.report import CheckReport
    from smdebug.storage.stores.base import Store

_BOARD_PREFIX = "tensorboard/"
_PAGES_PREFIX = "reports/"
# The first one is written by smdebug 1.0. Their content is not read.
_MARKS = re.compile(rf"^(claim\.smd|{LOCKS_PREFIX}[^/]+\.lock)$")
_CUT_BOARD = "TensorBoard files with an incomplete last record: the run is not finished"


class FileCheck:
    """Checks files that are neither index nor event files.

    Args:
        store: where the run is.
        report: receives the problems.

    Attributes:
        workers: the workers that have a collections file.
        promised: how many workers the run has, according to the collections files.
    """

    def __init__(self, store: Store, report: CheckReport) -> None:
        self.workers: set[str] = set()
        self.promised = 0
        self._store = store
        self._report = report
        self._kinds: list[tuple[str, str, Callable[[str], None]]] = [
            (COLLECTIONS_PREFIX, "_collections.json", self._collections),
            (FINDINGS_PREFIX, ".parquet", self._findings),
            (FINDINGS_PREFIX, ".json", self._findings),
            (CONTROL_PREFIX, ".json", self._request),
            (_PAGES_PREFIX, ".html", self._page),
            (_BOARD_PREFIX, ".tfevents", self._board),
            (END_KEY, END_KEY, self._end),
        ]

    def check(self, key: str) -> bool:
        """Check a file; return False if it does not belong to a run.

        Raises:
            KeyError: it does not exist.
            IndexReaderException: it is damaged.
        """
        for prefix, ending, check in self._kinds:
            if key.startswith(prefix) and key.endswith(ending):
                check(key)
                return True
        return _MARKS.match(key) is not None

    def _collections(self, key: str) -> None:
        worker = parse_collections_worker(key)
        if worker is not None:
            self.workers.add(worker)
        content = decode_collections(self._read(key), key).content
        collections = content.get("collections")
        if not isinstance(collections, dict):
            raise IndexReaderException("it has no collections")
        for name, collection in collections.items():
            names = collection.get("tensor_names", []) if isinstance(collection, dict) else None
            if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
                raise IndexReaderException(f"collection {name!r} does not list names of tensors")
        meta = content.get("_meta")
        number = meta.get("num_workers", 1) if isinstance(meta, dict) else 1
        if not isinstance(number, int) or number < 1:
            raise IndexReaderException(f"num_workers is {number!r}")
        self.promised = max(self.promised, number)

    def _findings(self, key: str) -> None:
        self._report.bytes += check_file(self._store, key)

    def _request(self, key: str) -> None:
        checked_request(bytes(self._read(key)), key)

    def _end(self, key: str) -> None:
        content = read_small(self._store, key)
        if EndMarker.decode(content) is None:
            raise IndexReaderException(
                "expected an empty file, or the time of the end and whether it was interrupted, "
                f"got {content!r}"
            )
        self._report.bytes += len(content)

    def _page(self, key: str) -> None:
        try:
            text = str(read_small(self._store, key), "utf-8")
        except UnicodeDecodeError as error:
            raise IndexReaderException(f"not a page: {error}") from error
        self._report.bytes += len(text.encode())
        if not text.rstrip().endswith("</html>"):
            raise IndexReaderException("the page is truncated")

    def _board(self, key: str) -> None:
        for record in scan_records(ChunkedFile(self._store, key)):
            if record.wrong is None:
                self._report.records += 1
                self._report.bytes += record.size
            elif record.cut and not self._report.finished:
                self._report.remark(_CUT_BOARD, key, size=record.size)
            else:
                self._report.add(key, record.wrong, offset=record.offset)

    def _read(self, key: str) -> bytes:
        data = read_json_text(self._store, key)
        self._report.bytes += len(data)
        return data
