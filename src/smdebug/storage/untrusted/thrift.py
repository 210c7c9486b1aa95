"""Decoder of Thrift's compact protocol, in which Parquet headers and footers are encoded.

It is stricter than other decoders: fields must be in the order of their IDs, each once, and
numbers must fit their type. So every decoder reads the same values from data that passes here. A
struct takes many times its encoded size in memory: callers pass slices of limited size.
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, SHORT, INT, LONG, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
# How deeply lists and structs may be nested.
_DEEPEST = 8
_LAST_FIELD = (1 << 15) - 1
_LIMITS = {SHORT: 1 << 15, INT: 1 << 31, LONG: 1 << 63}

Fields = dict[int, Any]


class ThriftError(ValueError):
    """The data is truncated or not valid Thrift."""


def key(field: int, kind: int, of: int = 0) -> int:
    """Return the key of a field in the result of `read_struct`, which includes its type.

    Args:
        field: the ID of the field.
        kind: its type.
        of: the element type of a list.
    """
    return field << 8 | of << 4 | kind


def read_struct(data: bytes | memoryview, at: int, depth: int = 0) -> tuple[Fields, int]:
    """Return the fields of a struct by their `key`, and the offset of its end.

    Raises:
        ThriftError: the struct is invalid.
    """
    if depth > _DEEPEST:
        raise ThriftError("structs are nested too deeply")
    found: Fields = {}
    field = 0
    try:
        while head := data[at]:
            at += 1
            kind = head & 15
            if head > 15:
                field += head >> 4
            else:
                last = field
                field, at = read_number(data, at, SHORT)
                if field <= last:
                    raise ThriftError("fields are out of order")
            # The most frequent types come first, and most numbers take one byte.
            if INT <= kind <= LONG:
                byte = data[at]
                if byte < 128:
                    at += 1
                    found[field << 8 | kind] = (byte >> 1) ^ -(byte & 1)
                else:
                    found[field << 8 | kind], at = read_number(data, at, kind)
            elif kind == LIST:
                of = data[at] & 15
                found[field << 8 | of << 4 | LIST], at = read_list(data, at, depth + 1)
            else:
                found[field << 8 | kind], at = read_value(data, at, kind, depth)
    except IndexError:
        raise ThriftError("the data is truncated") from None
    if field > _LAST_FIELD:
        raise ThriftError(f"there is no field {field}")
    return found, at + 1


def read_field(data: bytes | memoryview, at: int, last: int) -> tuple[int, int, int]:
    """Return the ID and the type of the next field of a struct, and the offset of its value.

    The type is 0 at the end of the struct.

    Args:
        data: the encoded data.
        at: where the previous field ends.
        last: the ID of the previous field; 0 at the start.

    Raises:
        ThriftError: the field is invalid.
    """
    try:
        head = data[at]
    except IndexError:
        raise ThriftError("the data is truncated") from None
    at += 1
    if not head:
        return 0, 0, at
    field = last + (head >> 4)
    if head < 16:
        field, at = read_number(data, at, SHORT)
    if not last < field <= _LAST_FIELD:
        raise ThriftError("fields are out of order")
    return field, head & 15, at


def read_value(data: bytes | memoryview, at: int, kind: int, depth: int = 0) -> tuple[Any, int]:
    """Return a value of a type, and the offset of its end; see `read_struct`."""
    if kind == BINARY:
        size, at = read_varint(data, at)
        end = at + size
        if end > len(data):
            raise ThriftError("the data is truncated")
        return data[at:end], end
    if kind == STRUCT:
        return read_struct(data, at, depth + 1)
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind in _LIMITS:
        return read_number(data, at, kind)
    if kind == LIST:
        return read_list(data, at, depth + 1)
    if kind in (BYTE, DOUBLE):
        end = at + (1 if kind == BYTE else 8)
        if end > len(data):
            raise ThriftError("the data is truncated")
        return data[at:end], end
    raise ThriftError(f"there is no type {kind}")


def read_list(data: bytes | memoryview, at: int, depth: int = 0) -> tuple[list[Any], int]:
    """Return the values of a list, and the offset of its end; see `read_struct`."""
    size, of, at = read_list_head(data, at)
    if depth > _DEEPEST:
        raise ThriftError("lists are nested too deeply")
    found = []
    for _ in range(size):
        if of in (TRUE, FALSE):
            # In a list, a bool takes one byte.
            value, at = data[at] == TRUE, at + 1
        else:
            value, at = read_value(data, at, of, depth)
        found.append(value)
    return found, at


def read_list_head(data: bytes | memoryview, at: int) -> tuple[int, int, int]:
    """Return the length of a list, its element type, and the offset of its elements.

    Raises:
        ThriftError: the list is longer than the data.
    """
    try:
        head = data[at]
    except IndexError:
        raise ThriftError("the data is truncated") from None
    at += 1
    size = head >> 4
    if size == 15:
        size, at = read_varint(data, at)
    # Every value takes at least one byte.
    if size > len(data) - at:
        raise ThriftError("a list is longer than the data")
    return size, head & 15, at


def read_number(data: bytes | memoryview, at: int, kind: int = LONG) -> tuple[int, int]:
    """Return an integer of a type, and the offset of its end; see `read_varint`."""
    value, at = read_varint(data, at)
    value = (value >> 1) ^ -(value & 1)
    limit = _LIMITS[kind]
    if not -limit <= value < limit:
        raise ThriftError(f"{value} is too large for its type")
    return value, at


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return an unsigned number, and the offset of its end.

    Raises:
        ThriftError: it is truncated, or has more than 64 bits.
    """
    value = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 63:
                raise ThriftError("a number is too long")
    except IndexError:
        raise ThriftError("the data is truncated") from None
    if value >> 64:
        raise ThriftError("a number is too large")
    return value, at
