"""The pages of a Parquet column: what they say they hold, before anything is made of them.

A page of a few kilobytes may claim two gigabytes, and a run of equal values any number of rows.
Arrow believes it. Here only the headers of the pages are read: Thrift's compact protocol.
"""

from __future__ import annotations

from typing import Any

from smdebug.exceptions import IndexReaderException
from smdebug.storage.limits import COLUMN_BYTES

# Kinds of fields in Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_DEEPEST = 4
# Fields of a page's header: sizes, and the headers of the kinds of pages. Each begins with how many
# values there are.
_UNCOMPRESSED, _COMPRESSED = 2, 3
_DATA, _DICTIONARY, _DATA_V2 = 5, 7, 8
_NONE = {1: 0}


def check_pages(data: memoryview, most_values: int) -> None:
    """Refuses a column of a row group whose pages ask for more than it can hold.

    Args:
        data: the bytes of the column in the file.
        most_values: how many values it may have.

    Raises:
        IndexReaderException: they do, or they are no pages.
    """
    at = size = values = entries = 0
    while at < len(data):
        try:
            header, at = _struct(data, at, 0)
            uncompressed, compressed = _number(header, _UNCOMPRESSED), _number(header, _COMPRESSED)
            entries += _number(header.get(_DICTIONARY, _NONE), 1)
            values += _number(header.get(_DATA, _NONE), 1) + _number(header.get(_DATA_V2, _NONE), 1)
        except (IndexError, KeyError, TypeError) as error:
            raise IndexReaderException("a column is not made of pages") from error
        size += uncompressed
        if min(uncompressed, compressed, entries, values) < 0 or compressed > len(data) - at:
            raise IndexReaderException("a page has a size that no page has")
        # A dictionary has no more entries than bytes.
        if size > COLUMN_BYTES or values > most_values or entries > size:
            raise IndexReaderException(
                f"a column of a row group claims {values:,} values and {size:,} bytes, expected at "
                f"most {most_values:,} and {COLUMN_BYTES:,}"
            )
        at += compressed


def _number(fields: dict[int, Any], number: int) -> int:
    value = fields[number]
    if type(value) is not int:
        raise TypeError("a field of another kind")
    return value


def _struct(data: memoryview, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """The fields of a structure by number, and where it ends."""
    if depth > _DEEPEST:
        raise TypeError("too deep")
    found: dict[int, Any] = {}
    number = 0
    while True:
        head = data[at]
        at += 1
        if not head:
            return found, at
        kind, step = head & 15, head >> 4
        if step:
            number += step
        else:
            number, at = _integer(data, at)
        if kind in (_TRUE, _FALSE):
            found[number] = kind == _TRUE
        elif kind in _INTEGERS:
            found[number], at = _integer(data, at)
        elif kind == _STRUCT:
            found[number], at = _struct(data, at, depth + 1)
        elif kind == _BINARY:
            length, at = _varint(data, at)
            at += length
        elif kind in (_BYTE, _DOUBLE):
            at += 1 if kind == _BYTE else 8
        else:
            raise TypeError(f"a field of kind {kind}")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise TypeError("a number that is too long")


def _integer(data: memoryview, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at
