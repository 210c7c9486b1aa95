"""Sizes in a file are compared with the limits of a run."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.faults import hostile

from smdebug.exceptions import IndexReaderException
from smdebug.storage import reader
from smdebug.storage.format.keys import IndexName, index_key, v1_index_key
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.untrusted import limits
from smdebug.storage.v1.index import parse_v1_step
from smdebug.storage.v2 import index
from smdebug.storage.v2.index import encode_index
from smdebug.storage.v2.index_file import ColumnCache, IndexFile
from smdebug.storage.v2.index_schema import check_column, check_schema, check_steps

KEY = index_key(0, 0, "worker_0")


def opened(data: bytes) -> IndexFile:
    store = MemoryStore()
    store.write(KEY, [data])
    return IndexFile(store, KEY, IndexName(0, 0, "worker_0"), ColumnCache())


def a_file(**row: Any) -> bytes:
    return bytes(encode_index(hostile.table_of([hostile.row("x", **row)])))


def test_page_with_a_high_compression_ratio() -> None:
    data = hostile.sealed_parquet(
        hostile.table_of([hostile.row("x" * (limits.CHUNK_BYTES + 1))]), 1 << 17
    )
    with pytest.raises(IndexReaderException, match="column tensor declares 1 values in"):
        _ = opened(data).names


def test_long_names_make_smaller_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "CHUNK_BYTES", 1000)
    names = [f"{'n' * 300}{number}" for number in range(10)]
    file = opened(bytes(encode_index(hostile.table_of([hostile.row(name) for name in names]))))
    assert file.metadata.num_row_groups == 4
    assert list(file.names) == names


def test_size_of_decoded_strings_is_limited() -> None:
    codes = pa.array(np.zeros(1000, np.int32))
    column = pa.DictionaryArray.from_arrays(codes, pa.array(["a" * 200_000]))
    with pytest.raises(IndexReaderException, match="200,000,000 bytes in one row group"):
        check_column("tensor", column)
    # One long text among many short ones is none of that.
    column = pa.DictionaryArray.from_arrays(codes, pa.array(["b", "a" * 200_000]))
    check_column("tensor", column)


def test_shapes_and_steps() -> None:
    kind = index.SCHEMA.field("shape").type
    check_column("shape", pa.array([[1] * 64, None, []], kind))
    for shape in ([1] * 65, [None]):
        with pytest.raises(IndexReaderException, match="dimensions"):
            check_column("shape", pa.array([shape], kind))
    good = {"step": pa.array([0]), "mode_step": pa.array([0])}
    check_steps(good)
    for change in ({"step": pa.array([10**12])}, {"mode_step": pa.array([-1])}):
        with pytest.raises(IndexReaderException, match="must lie between"):
            check_steps({**good, **change})


def test_other_columns() -> None:
    schema = index.SCHEMA
    check_schema(schema)
    check_schema(schema.append(pa.field("later", pa.float64())))
    for wrong in (
        schema.append(pa.field("deep", pa.struct([("a", pa.int64())]))),
        schema.append(pa.field("step", pa.int64())),
        schema.set(0, pa.field("step", pa.int64())),
        schema.set(0, pa.field("step", pa.float64(), nullable=False)),
    ):
        with pytest.raises(IndexReaderException):
            check_schema(wrong)


def test_json_of_many_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JSON_CONTAINERS", 3)
    assert limits.check_json(b"[[], []]", "k")
    with pytest.raises(IndexReaderException, match="k: expected JSON"):
        limits.check_json(b"[[], [], []]", "k")
    store = MemoryStore()
    store.write("k", [bytes(100)])
    with pytest.raises(IndexReaderException, match="at most 99 bytes"):
        limits.read_small(store, "k", 99)


def test_steps_and_names_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    store.write(KEY, [a_file()])
    RunReader(store).refresh()
    for limit in ("STEPS", "NAME_CHARACTERS"):
        with monkeypatch.context() as patch:
            patch.setattr(reader, limit, 0)
            with pytest.raises(IndexReaderException, match="in a run, got more"):
                RunReader(store).refresh()


@pytest.mark.parametrize(
    "item", [{"tensorname": "\ud800", "shape": [1]}, {"tensorname": "x", "shape": [1] * 65}]
)
def test_invalid_v1_index_files(item: dict[str, Any]) -> None:
    content = {"meta": {"mode": "TRAIN", "mode_step": 0}, "shape_payload": [item]}
    key = v1_index_key(0, "worker_0")
    with pytest.raises(IndexReaderException, match="not an index file of a run"):
        parse_v1_step(json.dumps(content).encode(), key, IndexName(0, None, "worker_0"))
