"""What a Parquet file claims, compared with what is there before Arrow makes room for it.

A seal says that a file is as it was written, not that an honest program wrote it: a few bytes can
claim to unpack to gigabytes. Row groups have an upper size in the format; column chunks and their
pages are held to it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from smdebug.exceptions import IndexReaderException
from smdebug.storage.untrusted.limits import CHUNK_BYTES, DIMENSIONS
from smdebug.storage.untrusted.thrift import INT, STRUCT, ThriftError, key, read_struct

if TYPE_CHECKING:
    from smdebug.storage.arrow import pq

# How many times as much as it weighs a chunk may unpack to.
_MOST_RATIO = 64
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
# What the header of a page takes at most; it may hold the bounds of the page.
_MOST_HEADER = 1 << 16


class Chunk(NamedTuple):
    """A column chunk, by the footer.

    Attributes:
        first: where it begins in the file.
        end: where it ends.
        values: how many values it has, nulls included.
        unpacked: how many bytes its pages unpack to, at most.
    """

    first: int
    end: int
    values: int
    unpacked: int


def checked_chunks(
    metadata: pq.FileMetaData, most_rows: int, most_bytes: int = CHUNK_BYTES
) -> list[Chunk]:
    """The column chunks of a file, group by group.

    Args:
        metadata: what the footer says.
        most_rows: how many rows a group may have.
        most_bytes: what a chunk may unpack to, whatever it weighs.

    Raises:
        IndexReaderException: a chunk claims what it cannot hold, or is of another type than its
            column.
    """
    kinds = [metadata.schema.column(leaf) for leaf in range(metadata.num_columns)]
    expected = [(each.path, each.physical_type, each.max_repetition_level > 0) for each in kinds]
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows = group.num_rows
        if not 0 <= rows <= most_rows or group.num_columns != len(expected):
            raise IndexReaderException(
                f"row group {number} has {rows} rows of {group.num_columns} columns; expected at "
                f"most {most_rows} of {len(expected)}"
            )
        for leaf, (path, kind, repeats) in enumerate(expected):
            column = group.column(leaf)
            if column.path_in_schema != path or column.physical_type != kind:
                raise IndexReaderException(f"row group {number} has no column {path} of {kind}")
            values = rows * DIMENSIONS if repeats else rows
            found.append(_chunk(column, values, most_bytes, path))
    return found


def _chunk(column: Any, most_values: int, most_bytes: int, path: str) -> Chunk:
    first = column.dictionary_page_offset
    first = column.data_page_offset if first is None else first
    size, unpacked, values = (
        column.total_compressed_size,
        column.total_uncompressed_size,
        column.num_values,
    )
    most = max(most_bytes, _MOST_RATIO * size)
    if first < 0 or size < 0 or not 0 <= unpacked <= most or not 0 <= values <= most_values:
        raise IndexReaderException(
            f"column {path} claims {values} values in {unpacked} bytes, packed into {size} at "
            f"offset {first}"
        )
    return Chunk(first, first + size, values, unpacked)


def check_pages(data: memoryview, chunk: Chunk) -> None:
    """Walks through the pages of a chunk and compares their claims with the footer's.

    Raises:
        IndexReaderException: a page claims more than its chunk, or the pages do not fit it.
    """
    at = unpacked = values = 0
    while at < len(data):
        try:
            header, length = read_struct(data[at : at + _MOST_HEADER], 0)
            at += length
            kind, size, packed = (header[key(field, INT)] for field in (1, 2, 3))
            inside = header[key({_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}[kind], STRUCT)]
            count = inside[key(1, INT)]
        except (KeyError, ThriftError) as error:
            raise IndexReaderException("a page has no header") from error
        # Headers count, too; those of an honest page take what they take in the file.
        unpacked += size
        values += 0 if kind == _DICTIONARY else count
        at += packed
        sound = size >= 0 and packed >= 0 and count >= 0 and at <= len(data)
        # An entry of a dictionary takes a byte at least.
        sound = sound and (kind != _DICTIONARY or count <= max(size, 1))
        if not sound or unpacked > chunk.unpacked or values > chunk.values:
            raise IndexReaderException(
                f"a page claims {count} values in {size} bytes, packed into {packed}; its column "
                f"chunk has {chunk.values} values in {chunk.unpacked} bytes"
            )
