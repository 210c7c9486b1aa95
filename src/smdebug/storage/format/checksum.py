"""Checksums of whole files: as a JSON footer, in a Parquet footer, or in the file name.

All of them are CRC32C; docs/formats.md describes their encoding. A missing checksum is not a wrong
one, because files of smdebug 1.0 have none.
"""

from __future__ import annotations

import re
import time as clock
import uuid
from typing import TYPE_CHECKING

import crc32c

from smdebug.exceptions import IndexReaderException

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdebug.storage.stores.base import Buffer

# The key of the Parquet metadata that has the checksums of a file.
PARQUET_KEY = b"smdebug.seal"
_DIGITS = 8

_JSON_FOOTER = re.compile(rb', "crc32c": "([0-9a-f]{8})"')
_PARQUET_VALUE = re.compile(rb"crc32c:([0-9]{8}):")
_NAME = re.compile(r"^(.*\d{13}-[0-9a-f]{8})-([0-9a-f]{8})\.[a-z]+$", re.DOTALL)


# ---- JSON: the last member, at the end of nested objects


def add_json_checksum(document: str, depth: int = 1) -> bytes:
    """Add a checksum as the last member of the last nested object.

    Args:
        document: a JSON object that ends with this many closing braces.
        depth: how many closing braces follow the checksum.

    Example:
        >>> add_json_checksum('{"a": 1}')
        b'{"a": 1, "crc32c": "efa86ef0"}'
    """
    body = document.encode()[:-depth]
    return body + b', "crc32c": "%08x"' % crc32c.crc32c(body) + b"}" * depth


def check_json_checksum(data: bytes, key: str, depth: int = 1) -> bool:
    """Verify the checksum of a JSON file; return False if it has none.

    Args:
        data: the file.
        key: its key, for the error.
        depth: as in `add_json_checksum`.

    Raises:
        IndexReaderException: the file fails its checksum.
    """
    start = len(data) - len(b', "crc32c": ""') - _DIGITS - depth
    footer = _JSON_FOOTER.match(data, start) if start >= 0 else None
    if footer is None or data[footer.end() :] != b"}" * depth:
        return False
    if crc32c.crc32c(memoryview(data)[:start]) != int(footer[1], 16):
        raise IndexReaderException(f"{key}: the file fails its checksum")
    return True


# ---- Parquet: one checksum per column chunk and one of the footer, in the footer's metadata


def parquet_placeholder(chunks: int) -> bytes:
    """Return the metadata value of a file before its checksums are known."""
    return b"crc32c:%08d:" % chunks + b"0" * _DIGITS * (chunks + 1)


def fill_parquet_checksums(
    data: bytearray, placeholder: bytes, footer_start: int, chunks: Sequence[tuple[int, int]]
) -> None:
    """Replace the placeholder in a file by its checksums.

    Args:
        data: the file, changed in place.
        placeholder: the placeholder in it.
        footer_start: where its footer starts.
        chunks: where every column chunk starts and ends.
    """
    view = memoryview(data)
    own = data.index(placeholder, footer_start) + len(placeholder) - _DIGITS
    checksums = b"".join(b"%08x" % crc32c.crc32c(view[start:end]) for start, end in chunks)
    view[own - len(checksums) : own] = checksums
    # The footer's own checksum is computed with its digits as zeros.
    view[own : own + _DIGITS] = b"%08x" % crc32c.crc32c(view[footer_start:])


def read_parquet_checksums(footer: Buffer) -> list[int]:
    """Verify the footer of a file and return the checksums of its column chunks.

    Raises:
        IndexReaderException: the footer fails its checksum or has none.
    """
    data = bytearray(footer)
    match = _PARQUET_VALUE.search(data, max(data.rfind(PARQUET_KEY), 0))
    if match is None:
        raise IndexReaderException(
            "no checksums: not an index file of this library, or a damaged one"
        )
    start, own = match.end(), match.end() + int(match[1]) * _DIGITS
    digits = data[start : own + _DIGITS]
    if len(digits) != own + _DIGITS - start or re.fullmatch(rb"[0-9a-f]+", digits) is None:
        raise IndexReaderException("the checksums are damaged")
    checksums = [int(data[at : at + _DIGITS], 16) for at in range(start, own + 1, _DIGITS)]
    data[own : own + _DIGITS] = b"0" * _DIGITS
    if crc32c.crc32c(data) != checksums[-1]:
        raise IndexReaderException("the footer fails its checksum")
    return checksums[:-1]


# ---- names: of small files that are written once


def checksummed_name(
    prefix: str, suffix: str, content: Buffer, run: str | None = None, time: float | None = None
) -> str:
    """Return a new key for a file, with a checksum of the key, the run and the content.

    Names sort by time, a random part makes names of concurrent writers unique, and the checksum
    comes last.

    Args:
        prefix: the start of the key.
        suffix: the ending of the file, without a dot.
        content: the content of the file.
        run: the ID of the run that the file belongs to.
        time: when it is written, in seconds since 1970; now when None.
    """
    milliseconds = int((clock.time() if time is None else time) * 1000)
    stem = f"{prefix}{milliseconds:013d}-{uuid.uuid4().hex[:8]}"
    return f"{stem}-{_name_checksum(stem, content, run):08x}.{suffix}"


def renamed_for_run(key: str, content: Buffer, run: str | None) -> str:
    """Return the key of a file in a copy of its run; a key without a checksum stays the same."""
    match = _NAME.match(key)
    if match is None:
        return key
    suffix = key.rpartition(".")[2]
    return f"{match[1]}-{_name_checksum(match[1], content, run):08x}.{suffix}"


def has_checksum(key: str) -> bool:
    """Whether a key has a checksum."""
    return _NAME.match(key) is not None


def fits_checksum(key: str, content: Buffer, run: str | None = None) -> bool:
    """Whether a key has the checksum of this content in this run."""
    match = _NAME.match(key)
    return match is not None and int(match[2], 16) == _name_checksum(match[1], content, run)


def _name_checksum(stem: str, content: Buffer, run: str | None) -> int:
    return int(crc32c.crc32c(content, crc32c.crc32c(f"{stem} {run or ''}".encode())))
