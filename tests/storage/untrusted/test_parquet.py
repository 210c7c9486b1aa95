"""Sizes in an index file are compared with the file before it is decompressed."""

from __future__ import annotations

import numpy as np
import pytest

from smdebug.exceptions import IndexReaderException
from smdebug.mode_keys import ModeKeys
from smdebug.storage.arrow import pa
from smdebug.storage.format.keys import IndexName, index_key
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.untrusted.parquet import Chunk, _check_pages
from smdebug.storage.v2 import index
from smdebug.storage.v2.index import IndexRow, encode_index, newest_rows, rows_to_table
from smdebug.storage.v2.index_file import ColumnCache, IndexFile

KEY = index_key(0, 0, "w")


def opened(data: memoryview) -> IndexFile:
    store = MemoryStore()
    store.write(KEY, [data])
    return IndexFile(store, KEY, IndexName(0, 0, "w"), ColumnCache())


def table(rows: int) -> pa.Table:
    row = IndexRow(0, ModeKeys.TRAIN, 0, "t", 0.0, 0, value=1.0, dtype="float32", shape=())
    one = rows_to_table([row], "w", 0)
    many = one.take(pa.array(np.zeros(rows, np.int64)))
    return many.set_column(0, "step", pa.array(np.arange(rows)))


def number(value: int) -> bytes:
    zigzag, out = (value << 1) ^ (value >> 63), b""
    while zigzag >= 128:
        out, zigzag = out + bytes([zigzag & 127 | 128]), zigzag >> 7
    return out + bytes([zigzag])


def page(kind: int, size: int, packed: int, count: int, content: bytes) -> bytes:
    """A page as the compact protocol of Thrift writes it: the fields 1 to 3, and a struct."""
    fields = b"\x15" + number(kind) + b"\x15" + number(size) + b"\x15" + number(packed)
    place = {0: 5, 2: 7, 3: 8}.get(kind, 5) - 3
    inner = b"\x15" + number(count) + b"\x00"
    return fields + bytes([place << 4 | 12]) + inner + b"\x00" + content


def test_valid_files_are_read() -> None:
    file = opened(encode_index(newest_rows(table(200_000))))
    assert file.metadata.num_row_groups == 2
    assert file.table(["step", "value", "shape"]).num_rows == 200_000
    file.check_all()


def test_a_row_group_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "ROWS_PER_GROUP", 1 << 18)
    data = encode_index(newest_rows(table(1 << 18)))
    assert len(data) < 1 << 20
    with pytest.raises(IndexReaderException, match="262144 rows"):
        opened(data)


@pytest.mark.parametrize(
    "content",
    [
        page(0, 1 << 31, 4, 10, b"1234"),
        page(0, 50, 4, 1 << 31, b"1234"),
        page(0, 50, 4, 11, b"1234"),
        page(2, 8, 4, 1 << 30, b"1234") + page(0, 50, 4, 10, b"1234"),
        page(0, 60, 4, 5, b"1234") + page(3, 60, 4, 5, b"1234"),
        page(0, 50, 40, 10, b"1234"),
        page(0, -50, 4, 10, b"1234"),
        page(0, 50, -4, 10, b"1234"),
        page(1, 50, 4, 10, b"1234"),
        page(0, 50, 4, 10, b"1234") + b"\x15",
        b"\x15\x00\x1c\x15\x02\x00" + page(0, 50, 4, 10, b"1234")[4:],
        b"\x19\xfc",
        b"\xff" * 40,
        bytes(20),
        b"\x1c" * 90,
    ],
)
def test_pages_that_declare_more_than_their_chunk(content: bytes) -> None:
    _check_pages(memoryview(page(0, 50, 4, 10, b"1234")), Chunk(0, 0, 10, 100))
    with pytest.raises(IndexReaderException, match="page"):
        _check_pages(memoryview(content), Chunk(0, 0, 10, 100))


def test_a_column_of_another_type_is_refused() -> None:
    sound = newest_rows(table(3))
    strange = sound.set_column(
        sound.column_names.index("value"), "value", pa.array([1, 2, 3], pa.int64())
    )
    schema = index.SCHEMA
    try:
        place = schema.names.index("value")
        index.SCHEMA = schema.set(place, pa.field("value", pa.int64()))
        data = encode_index(strange)
    except (pa.ArrowException, OSError):
        pytest.fail("the file could not be made")
    finally:
        index.SCHEMA = schema
    with pytest.raises(IndexReaderException, match="value"):
        opened(data)
