"""Sequential scan of the records of a file, each verified by its framing."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import crc32c

from smdebug.exceptions import DataCorrupted
from smdebug.storage.format.records import (
    HEADER_SIZE,
    OVERHEAD,
    V1_FOOTER,
    mask,
    payload_length,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.storage.stores.base import Store

# How many bytes of a remote file are in memory, and of any file are verified, at once.
_PIECE = 8 << 20


class Scanned(NamedTuple):
    """A record, or the truncated end of a file.

    Attributes:
        offset: where it starts.
        size: its size with framing; the rest of the range if it is truncated.
        wrong: what is wrong with it; None if it is intact.
        cut: the file ends inside it.
    """

    offset: int
    size: int
    wrong: str | None = None
    cut: bool = False


class ChunkedFile:
    """The bytes of a file: mapped if it is local, else fetched in chunks.

    Args:
        store: where the file is.
        key: its key.

    Raises:
        KeyError: it does not exist.
    """

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key = store, key
        self._at, self._data = 0, memoryview(b"")
        self._ends = not store.remote
        if not store.remote:
            self._data = store.read(key)

    def read(self, start: int, length: int) -> memoryview:
        """Return a range of the file, clipped to its end."""
        inside = self._at <= start and start + length <= self._at + len(self._data)
        if not inside and not self._ends:
            self._fetch(start, length)
        first = start - self._at
        return self._data[first : first + length]

    def checksum(self, start: int, length: int) -> int:
        """Return the CRC32C of a range."""
        crc = 0
        for at in range(start, start + length, _PIECE):
            crc = crc32c.crc32c(self.read(at, min(_PIECE, start + length - at)), crc)
        return crc

    def _fetch(self, start: int, length: int) -> None:
        # From one byte before: a store refuses a range after the end.
        self._at = max(start - 1, 0)
        self._data = self._store.read(self._key, self._at, max(length, _PIECE) + 1)


def scan_records(
    file: ChunkedFile, start: int = 0, end: int | None = None, v1: bool = False
) -> Iterator[Scanned]:
    """Scan the records of a range of a file.

    A damaged payload is skipped. The scan ends at a damaged header, because the start of the next
    record is unknown.

    Args:
        file: the file.
        start: where a record starts.
        end: where the range ends; the end of the file when None.
        v1: accept the constant footer of format v1.
    """
    offset = start
    while end is None or offset < end:
        head = file.read(offset, HEADER_SIZE)
        if not len(head):
            return
        if len(head) < HEADER_SIZE:
            yield Scanned(offset, _rest(file, offset, end), "file ends inside a record", True)
            return
        try:
            length = payload_length(head, key="", offset=0)
        except DataCorrupted as error:
            yield Scanned(offset, _rest(file, offset, end), error.message)
            return
        after_record = offset + OVERHEAD + length
        foot = file.read(after_record - 4, 4)
        if len(foot) < 4 or (end is not None and after_record > end):
            yield Scanned(
                offset, _rest(file, offset, end), "file ends inside a record", len(foot) < 4
            )
            return
        (stored,) = struct.unpack("<I", foot)
        sound = v1 and stored == V1_FOOTER
        sound = sound or stored == mask(file.checksum(offset + HEADER_SIZE, length))
        wrong = None if sound else "record payload fails its checksum"
        yield Scanned(offset, after_record - offset, wrong)
        offset = after_record


def _rest(file: ChunkedFile, offset: int, end: int | None) -> int:
    """Return how many bytes the range has left, or a lower bound."""
    return len(file.read(offset, _PIECE)) if end is None else end - offset
