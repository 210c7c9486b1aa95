"""Validation of Parquet files of unknown origin, before Arrow allocates memory for them.

A checksum shows that a file was not changed, not that its author is trusted: a few bytes can
declare that they decompress to gigabytes, and some footers make pyarrow abort the process. The
footer is validated first, then column chunks and pages are held to the limits of the format.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from smdebug.exceptions import IndexReaderException
from smdebug.storage.arrow import pa, pq
from smdebug.storage.untrusted.footer import check_footer
from smdebug.storage.untrusted.limits import CHUNK_BYTES, DIMENSIONS, FOOTER_BYTES
from smdebug.storage.untrusted.thrift import INT, STRUCT, ThriftError, key, read_struct

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Buffer

MAGIC = b"PAR1"
# The end of a file: the size of the footer before it, and the magic bytes.
_TAIL = struct.Struct("<I4s")
TAIL_BYTES = _TAIL.size
# How many times its compressed size a chunk may decompress to.
_MAX_RATIO = 64
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
# How many bytes the header of a page may take; it can hold the bounds of the page.
_MAX_HEADER = 1 << 16


def footer_size(tail: memoryview) -> int:
    """Return how many bytes the footer takes at the end of a file.

    Args:
        tail: the file, or the end of it.

    Raises:
        IndexReaderException: it does not end as a Parquet file, or the footer is too large.
    """
    if len(tail) < TAIL_BYTES:
        raise IndexReaderException("not a Parquet file: it is too short")
    length, magic = _TAIL.unpack_from(tail, len(tail) - TAIL_BYTES)
    if magic != MAGIC:
        raise IndexReaderException("not a Parquet file: its last bytes are wrong")
    size = int(length) + TAIL_BYTES
    if size > FOOTER_BYTES:
        raise IndexReaderException(
            f"the footer takes {size:,} bytes, expected at most {FOOTER_BYTES:,}"
        )
    return size


class Chunk(NamedTuple):
    """A column chunk as the footer describes it.

    Attributes:
        first: where it starts in the file.
        end: where it ends.
        values: how many values it has, nulls included.
        unpacked: how many bytes its pages decompress to, at most.
    """

    first: int
    end: int
    values: int
    unpacked: int


class ParquetFooter:
    """The footer of a Parquet file of unknown origin, validated.

    Args:
        footer: the footer with its tail, the last `footer_size` bytes of the file.
        max_rows: how many rows a row group may have.
        max_bytes: how many bytes a column chunk may always decompress to.

    Attributes:
        metadata: the footer as pyarrow parses it.
        chunks: the column chunks, row group by row group.

    Raises:
        IndexReaderException: the footer is malformed, or declares more than the file can hold.
    """

    def __init__(self, footer: memoryview, max_rows: int, max_bytes: int = CHUNK_BYTES) -> None:
        check_footer(footer[:-TAIL_BYTES])
        self.metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(footer)))
        self.chunks = _checked_chunks(self.metadata, max_rows, max_bytes)

    def check_pages(self, number: int, data: memoryview) -> None:
        """Compare the page headers of a column chunk with the footer.

        Args:
            number: the index of the chunk.
            data: its bytes.

        Raises:
            IndexReaderException: a page declares more than its chunk, or the pages do not match it.
        """
        _check_pages(data, self.chunks[number])


def validate_file(data: Buffer, max_rows: int, max_bytes: int = CHUNK_BYTES) -> ParquetFooter:
    """Validate a whole file; arguments and errors are those of `ParquetFooter`."""
    view = memoryview(data)
    size = footer_size(view)
    if size > len(view):
        raise IndexReaderException("the file is shorter than its footer")
    footer = ParquetFooter(view[len(view) - size :], max_rows, max_bytes)
    for number, chunk in enumerate(footer.chunks):
        if chunk.end > len(view):
            raise IndexReaderException("a column chunk extends beyond the file")
        footer.check_pages(number, view[chunk.first : chunk.end])
    return footer


def _checked_chunks(metadata: pq.FileMetaData, max_rows: int, max_bytes: int) -> list[Chunk]:
    kinds = [metadata.schema.column(leaf) for leaf in range(metadata.num_columns)]
    expected = [(each.path, each.physical_type, each.max_repetition_level > 0) for each in kinds]
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows = group.num_rows
        if not 0 <= rows <= max_rows or group.num_columns != len(expected):
            raise IndexReaderException(
                f"row group {number} has {rows} rows of {group.num_columns} columns; expected at "
                f"most {max_rows} of {len(expected)}"
            )
        for leaf, (path, kind, repeats) in enumerate(expected):
            column = group.column(leaf)
            if column.path_in_schema != path or column.physical_type != kind:
                raise IndexReaderException(f"row group {number} has no column {path} of {kind}")
            values = rows * DIMENSIONS if repeats else rows
            found.append(_chunk(column, values, max_bytes, path))
    return found


def _chunk(column: Any, max_values: int, max_bytes: int, path: str) -> Chunk:
    first = column.dictionary_page_offset
    first = column.data_page_offset if first is None else first
    size, unpacked, values = (
        column.total_compressed_size,
        column.total_uncompressed_size,
        column.num_values,
    )
    most = max(max_bytes, _MAX_RATIO * size)
    if first < 0 or size < 0 or not 0 <= unpacked <= most or not 0 <= values <= max_values:
        raise IndexReaderException(
            f"column {path} declares {values} values in {unpacked} bytes, packed into {size} at "
            f"offset {first}"
        )
    return Chunk(first, first + size, values, unpacked)


def _check_pages(data: memoryview, chunk: Chunk) -> None:
    at = unpacked = values = 0
    while at < len(data):
        try:
            header, length = read_struct(data[at : at + _MAX_HEADER], 0)
            at += length
            kind, size, packed = (header[key(field, INT)] for field in (1, 2, 3))
            inside = header[key({_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}[kind], STRUCT)]
            count = inside[key(1, INT)]
        except (KeyError, ThriftError) as error:
            raise IndexReaderException("a page has no header") from error
        unpacked += size
        values += 0 if kind == _DICTIONARY else count
        at += packed
        sound = size >= 0 and packed >= 0 and count >= 0 and at <= len(data)
        # An entry of a dictionary takes at least a byte.
        sound = sound and (kind != _DICTIONARY or count <= max(size, 1))
        if not sound or unpacked > chunk.unpacked or values > chunk.values:
            raise IndexReaderException(
                f"a page declares {count} values in {size} bytes, packed into {packed}; its column "
                f"chunk has {chunk.values} values in {chunk.unpacked} bytes"
            )
