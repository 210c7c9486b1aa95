"""The bytes of an index file: mapped, or fetched on demand."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from smdebug.exceptions import IndexReaderException
from smdebug.storage.arrow import pa
from smdebug.storage.untrusted import MAGIC, footer_size

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Store

# How many bytes a remote read of the footer fetches; small files are fetched whole.
_TAIL_BYTES = 1 << 16


class IndexBytes:
    """The bytes of a file: mapped if it is local, else memory that is filled on demand.

    The memory of a remote file is reserved, not used: ranges that were not fetched take none.
    """

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key
        # Local files are mapped, or so small that reading all of it costs no more.
        self._data = store.read(key, -_TAIL_BYTES) if store.remote else store.read(key)

    def footer(self) -> memoryview:
        size = footer_size(self._data)
        if size > len(self._data) and self._store.remote:
            self._data = self._store.read(self._key, -size)
        if size > len(self._data):
            raise IndexReaderException("the file is shorter than its footer")
        return self._data[len(self._data) - size :]

    def set_size(self, size: int) -> None:
        tail = self._data
        if len(tail) < size and self._store.remote:
            self._data = memoryview(mmap.mmap(-1, size))
            self._data[size - len(tail) :] = tail
            self._missing_before = size - len(tail)
        else:
            self._missing_before = 0
        if len(self._data) != size or (
            not self._missing_before and bytes(self._data[: len(MAGIC)]) != MAGIC
        ):
            raise IndexReaderException("the file is truncated")

    def check_magic(self) -> None:
        """Raise `IndexReaderException` if the first bytes are not those of a Parquet file."""
        self.fetch([(0, len(MAGIC))])
        if bytes(self._data[: len(MAGIC)]) != MAGIC:
            raise IndexReaderException(f"{self._key}: the first bytes are wrong")

    def buffer(self) -> pa.Buffer:
        return pa.py_buffer(self._data)

    def view(self, first: int, end: int) -> memoryview:
        return self._data[first:end]

    def fetch(self, ranges: list[tuple[int, int]]) -> None:
        wanted = [(first, min(end, self._missing_before)) for first, end in ranges]
        for first, end in _merge_close([part for part in wanted if part[0] < part[1]]):
            data = self._store.read(self._key, first, end - first)
            if len(data) != end - first:
                raise IndexReaderException(f"{self._key}: the file is truncated at offset {first}")
            self._data[first:end] = data


def _merge_close(ranges: list[tuple[int, int]], gap: int = 1 << 17) -> list[tuple[int, int]]:
    """Merge ranges that are so close that one request is cheaper than two."""
    merged: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if merged and first - merged[-1][1] <= gap:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged
