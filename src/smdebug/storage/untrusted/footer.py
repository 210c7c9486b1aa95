"""Validation of the footer of a Parquet file before pyarrow parses it.

pyarrow aborts the process for some invalid footers: statistics that are shorter than their type,
and histograms that do not fit the levels of their column. So only footers like those of our files
are accepted, with fields of higher numbers that a later pyarrow may add.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from smdebug.exceptions import IndexReaderException
from smdebug.storage.untrusted.thrift import (
    BINARY,
    FALSE,
    INT,
    LIST,
    LONG,
    SHORT,
    STRUCT,
    TRUE,
    Fields,
    ThriftError,
    key,
    read_field,
    read_list_head,
    read_value,
    read_varint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_BYTE_ARRAY = 6
# The size of a value of each type; our files have no other types.
_SIZES = {0: 1, 1: 4, 2: 8, 4: 4, 5: 8, _BYTE_ARRAY: None}
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
# Far more than our files have: columns, and nested groups of columns.
_MAX_COLUMNS, _MAX_DEPTH = 4096, 8
# The size of the metadata of one column chunk or column, or of any other field, at most.
_MAX_BYTES = 1 << 16

# The fields of the format, as pyarrow writes them, without those of encryption.
_FILE = {
    key(1, INT), key(2, LIST, STRUCT), key(3, LONG), key(4, LIST, STRUCT), key(5, LIST, STRUCT),
    key(6, BINARY), key(7, LIST, STRUCT),
}  # fmt: skip
_ELEMENT = {
    key(1, INT), key(2, INT), key(3, INT), key(4, BINARY), key(5, INT), key(6, INT), key(7, INT),
    key(8, INT), key(9, INT), key(10, STRUCT),
}  # fmt: skip
_GROUP = {
    key(1, LIST, STRUCT), key(2, LONG), key(3, LONG), key(4, LIST, STRUCT), key(5, LONG),
    key(6, LONG), key(7, SHORT),
}  # fmt: skip
_CHUNK = {
    key(1, BINARY), key(2, LONG), key(3, STRUCT), key(4, LONG), key(5, INT), key(6, LONG),
    key(7, INT),
}  # fmt: skip
_META = {
    key(1, INT), key(2, LIST, INT), key(3, LIST, BINARY), key(4, INT), key(5, LONG), key(6, LONG),
    key(7, LONG), key(8, LIST, STRUCT), key(9, LONG), key(10, LONG), key(11, LONG),
    key(12, STRUCT), key(13, LIST, STRUCT), key(14, LONG), key(15, INT), key(16, STRUCT),
}  # fmt: skip
_STATISTICS = {
    key(1, BINARY), key(2, BINARY), key(3, LONG), key(4, LONG), key(5, BINARY), key(6, BINARY),
    key(7, TRUE), key(7, FALSE), key(8, TRUE), key(8, FALSE),
}  # fmt: skip
_SIZE_STATISTICS = {key(1, LONG), key(2, LIST, LONG), key(3, LIST, LONG)}
# The required fields.
_FILE_NEEDS = {key(1, INT), key(2, LIST, STRUCT), key(3, LONG), key(4, LIST, STRUCT)}
_GROUP_NEEDS = {key(1, LIST, STRUCT), key(2, LONG), key(3, LONG)}
_META_NEEDS = {
    key(1, INT), key(2, LIST, INT), key(3, LIST, BINARY), key(4, INT), key(5, LONG), key(6, LONG),
    key(7, LONG), key(9, LONG),
}  # fmt: skip
_BOUNDS = (key(1, BINARY), key(2, BINARY), key(5, BINARY), key(6, BINARY))


class Leaf(NamedTuple):
    """A column, by the schema of the file.

    Attributes:
        kind: the number of its type.
        definition: its highest definition level.
        repetition: its highest repetition level.
    """

    kind: int
    definition: int
    repetition: int


# The schema that was read last, with the bytes it was read from: files of a run have the same.
_known: tuple[bytes, list[Leaf]] = (b"", [])


def check_footer(footer: memoryview | bytes) -> None:
    """Raise if a footer, without the tail of the file, differs in structure from ours.

    Raises:
        IndexReaderException: it does.
    """
    try:
        _check_file(bytes(footer))
    except ThriftError as error:
        raise IndexReaderException(f"the footer is not that of an index file: {error}") from error


def _check_file(data: bytes) -> None:
    found: Fields = {}
    leaves: list[Leaf] = []
    at = field = 0
    while True:
        field, kind, at = read_field(data, at, field)
        if not kind:
            break
        of = data[at] & 15 if kind == LIST and at < len(data) else 0
        where = key(field, kind, of)
        found[where] = None
        if where == key(2, LIST, STRUCT):
            leaves, at = _schema(data, at)
        elif where == key(4, LIST, STRUCT):
            at = _check_groups(data, at, leaves)
        elif where == key(7, LIST, STRUCT):
            at = _check_orders(data, at, leaves)
        elif where == key(5, LIST, STRUCT):
            at = _check_entries(data, at)
        else:
            _, at = _read(data, at, kind)
    _check_fields("the file", found, _FILE, _FILE_NEEDS)
    if at != len(data):
        raise ThriftError("there is data after its end")


def _check_fields(what: str, found: Fields, known: set[int], needed: set[int]) -> None:
    """Raise for a known field of another type; unknown fields must have higher IDs."""
    fields = found.keys()
    other = fields - known
    if (other and min(other) >> 8 <= max(known) >> 8) or needed - fields:
        raise ThriftError(f"{what} has missing or invalid fields")
    # The fields of encryption follow the known ones.
    if other and known in (_FILE, _CHUNK) and min(other) >> 8 <= 9:
        raise ThriftError(f"{what} is encrypted")


def _read(data: bytes, at: int, kind: int = STRUCT) -> tuple[Any, int]:
    value, end = read_value(data[at : at + _MAX_BYTES], 0, kind)
    return value, at + end


def _check_entries(data: bytes, at: int) -> int:
    """Skip the key-value metadata; the checksums in it may be long."""
    count, _, at = read_list_head(data, at)
    for _ in range(count):
        field, kind, at = read_field(data, at, 0)
        while kind:
            if kind != BINARY or field > 2:
                raise ThriftError("an entry has more than a key and a value")
            size, at = read_varint(data, at)
            field, kind, at = read_field(data, at + size, field)
    return at


def _check_orders(data: bytes, at: int, leaves: list[Leaf]) -> int:
    size, _, begin = read_list_head(data, at)
    if size != len(leaves):
        raise ThriftError(f"{size} columns have an order, expected {len(leaves)}")
    # The only column order that Parquet defines so far.
    usual = b"\x1c\x00\x00" * size
    return begin + len(usual) if data.startswith(usual, begin) else _read(data, at, LIST)[1]


# ---- the schema


def _schema(data: bytes, at: int) -> tuple[list[Leaf], int]:
    global _known
    written, leaves = _known
    if written and data.startswith(written, at):
        return leaves, at + len(written)
    first = at
    size, _, at = read_list_head(data, at)
    if size > _MAX_COLUMNS:
        raise ThriftError(f"it has {size:,} columns, expected at most {_MAX_COLUMNS:,}")
    elements = []
    for _ in range(size):
        element, at = _read(data, at)
        _check_fields("a column", element, _ELEMENT, {key(4, BINARY)})
        elements.append(element)
    leaves = _leaves(elements)
    _known = (data[first:at], leaves)
    return leaves, at


def _leaves(elements: list[Fields]) -> list[Leaf]:
    if not elements or key(5, INT) not in elements[0]:
        raise ThriftError("it has no columns")
    found = []
    # The open groups: how many children are left, and their levels.
    open_groups = [[elements[0][key(5, INT)], 0, 0]]
    for element in elements[1:]:
        while open_groups and not open_groups[-1][0]:
            open_groups.pop()
        if not open_groups or len(open_groups) > _MAX_DEPTH:
            raise ThriftError("its columns are nested too deeply, or are in no group")
        open_groups[-1][0] -= 1
        _, definition, repetition = open_groups[-1]
        repeats = element.get(key(3, INT))
        if repeats not in (_REQUIRED, _OPTIONAL, _REPEATED):
            raise ThriftError(f"there is no repetition type {repeats}")
        definition += repeats != _REQUIRED
        repetition += repeats == _REPEATED
        children, kind = element.get(key(5, INT), 0), element.get(key(1, INT))
        if children and (kind is not None or children < 0):
            raise ThriftError("a group of columns has a type")
        if children:
            open_groups.append([children, definition, repetition])
        elif kind in _SIZES:
            found.append(Leaf(kind, definition, repetition))
        else:
            raise ThriftError(f"a column is of type {kind}")
    if any(left for left, _, _ in open_groups):
        raise ThriftError("columns are missing")
    return found


# ---- row groups

# Compiling a pattern takes as long as parsing some hundred chunks: a few small files, as most
# commands open, are parsed without one.
_WORTH = 400
_met: Counter[Leaf] = Counter()

# Numbers of at most 28 and 63 bits, and a struct of three: page type, encoding, count.
_SMALL, _LARGE = rb"[\x80-\xff]{0,3}[\x00-\x7f]", rb"[\x80-\xff]{0,8}[\x00-\x7f]"
_PAGES = rb"\x15%b\x15%b\x15%b\x00" % (_SMALL, _SMALL, _SMALL)


def _bytes_of(sizes: Iterable[int]) -> bytes:
    return b"(?:%b)" % b"|".join(rb"\x%02x.{%d}" % (size, size) for size in sizes)


_NAME = _bytes_of(range(1, 33))


def _matcher(leaf: Leaf, chunks: int) -> Callable[[bytes, int], re.Match[bytes] | None]:
    """Return a matcher of typical chunks; it matches nothing until compiling one pays off."""
    _met[leaf] += chunks
    return _usual(leaf).match if _met[leaf] > _WORTH else _no_match


def _no_match(data: bytes, at: int) -> None:
    return None


@cache
def _usual(leaf: Leaf) -> re.Pattern[bytes]:
    """Return a pattern of the column chunks that pyarrow writes in almost all files.

    Other chunks are parsed by `_check_chunk`, which takes ten times as long.
    """
    size = _SIZES[leaf.kind]
    bound = _bytes_of(range(64) if size is None else [size])
    levels = [
        rb"(?:\x06|\x%02x%b)" % ((level + 1) << 4 | LONG, _LARGE * (level + 1))
        for level in (leaf.repetition, leaf.definition)
    ]
    texts = rb"\x16%b\x19" % _LARGE if leaf.kind == _BYTE_ARRAY else rb"\x29"
    longs = [_LARGE] * 3
    parts = [
        rb"\x26%b\x1c\x15\x%02x" % (_LARGE, leaf.kind << 1),
        rb"\x19(?:\x15[\x00-\x7f]|\x25[\x00-\x7f]{2}|\x35[\x00-\x7f]{3}|\x45[\x00-\x7f]{4})",
        rb"\x19(?:\x18%b|\x38%b)" % (_NAME, _NAME * 3),
        rb"\x15%b\x16%b\x16%b\x16%b" % (_SMALL, *longs),
        # The offsets of data and dictionary, then the statistics.
        rb"\x26%b(?:\x26%b\x1c|\x3c)" % (_LARGE, _LARGE),
        rb"(?:\x18%b\x18%b\x16%b|\x36%b)" % (bound, bound, _LARGE, _LARGE),
        rb"(?:\x28%b\x18%b[\x11\x12]{0,2})?\x00" % (bound, bound),
        rb"\x19(?:\x1c%b|\x2c%b|\x3c%b)" % (_PAGES, _PAGES * 2, _PAGES * 3),
        rb"(?:\x3c%b%b\x19%b\x00)?\x00" % (texts, *levels),
        # The offset of its page index.
        rb"(?:\x16%b\x15%b\x16%b\x15%b)?\x00" % (_LARGE, _SMALL, _LARGE, _SMALL),
    ]
    return re.compile(b"".join(parts), re.DOTALL)


def _check_groups(data: bytes, at: int, leaves: list[Leaf]) -> int:
    count, _, at = read_list_head(data, at)
    # The matcher of every column, looked up once for all groups.
    usual = [_matcher(leaf, count) for leaf in leaves]
    for _ in range(count):
        found: Fields = {}
        field = 0
        while True:
            field, kind, at = read_field(data, at, field)
            if not kind:
                break
            of = data[at] & 15 if kind == LIST and at < len(data) else 0
            found[key(field, kind, of)] = None
            if key(field, kind, of) != key(1, LIST, STRUCT):
                _, at = _read(data, at, kind)
                continue
            size, _, at = read_list_head(data, at)
            if size != len(leaves):
                raise ThriftError(f"a row group has {size} columns, expected {len(leaves)}")
            for leaf, match in zip(leaves, usual, strict=True):
                seen = match(data, at)
                at = seen.end() if seen else _check_chunk(data, at, leaf)
        _check_fields("a row group", found, _GROUP, _GROUP_NEEDS)
    return at


def _check_chunk(data: bytes, at: int, leaf: Leaf) -> int:
    """Check a column chunk of any writer."""
    chunk, at = _read(data, at)
    _check_fields("a column chunk", chunk, _CHUNK, {key(2, LONG), key(3, STRUCT)})
    meta = chunk[key(3, STRUCT)]
    _check_fields("a column chunk", meta, _META, _META_NEEDS)
    if meta[key(1, INT)] != leaf.kind:
        raise ThriftError(f"a column chunk is of type {meta[key(1, INT)]}, expected {leaf.kind}")
    statistics, sizes = meta.get(key(12, STRUCT)), meta.get(key(16, STRUCT))
    if statistics is not None:
        _check_fields("a column's statistics", statistics, _STATISTICS, set())
        size = _SIZES[leaf.kind]
        bounds = [statistics[each] for each in _BOUNDS if each in statistics]
        if size is not None and any(len(bound) != size for bound in bounds):
            raise ThriftError("a bound of a column is not of its type")
    if sizes is not None:
        _check_sizes(sizes, leaf)
    return at


def _check_sizes(sizes: Fields, leaf: Leaf) -> None:
    _check_fields("a column's sizes", sizes, _SIZE_STATISTICS, set())
    if leaf.kind != _BYTE_ARRAY and key(1, LONG) in sizes:
        raise ThriftError("a column without texts says how long they are")
    for field, level in ((2, leaf.repetition), (3, leaf.definition)):
        histogram = sizes.get(key(field, LIST, LONG))
        if histogram and len(histogram) != level + 1:
            raise ThriftError(
                f"a histogram of levels has {len(histogram)} entries, expected {level + 1}"
            )
