"""The Parquet index: what goes in comes out, other engines agree, every damage is found."""

from __future__ import annotations

import io
import math
import random
import struct
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smdebug.exceptions import IndexReaderException
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import REDUCTION_NAMES
from smdebug.storage.format.keys import IndexName
from smdebug.storage.segment_summary import mode_bit
from smdebug.storage.stores.memory import MemoryStore
from smdebug.storage.v2 import index
from smdebug.storage.v2.index import SCHEMA, IndexRow, encode_index, newest_rows, rows_to_table
from smdebug.storage.v2.index_file import ColumnCache, IndexFile

if TYPE_CHECKING:
    from pathlib import Path

KEY = "index/000000000/000000000000-000000_worker_0.parquet"
NAME = IndexName(0, 0, "worker_0")

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FLOATS = st.floats(width=64) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0])
SHAPES = st.sampled_from([None, (), (0,), (1,), (2, 3), (2**40, 0, 7)])


@st.composite
def index_rows(draw: st.DrawFn) -> IndexRow:
    row = IndexRow(
        step=draw(st.integers(0, 20) | st.integers(0, 10**12 - 1)),
        mode=draw(st.sampled_from(list(ModeKeys))),
        mode_step=draw(st.integers(0, 10**12)),
        tensor=draw(NAMES),
        time=draw(st.floats(0, 1e10)),
        position=draw(st.integers(0, 5)),
        dtype=draw(st.none() | st.sampled_from(["float32", "bfloat16", "str"])),
        shape=draw(SHAPES),
        value=draw(st.none() | FLOATS),
        reductions=draw(st.dictionaries(st.sampled_from(REDUCTION_NAMES), FLOATS, max_size=4)),
    )
    if draw(st.booleans()):
        row.event_file = draw(NAMES)
        row.offset = draw(st.integers(0, 2**62))
        row.length = draw(st.integers(0, 2**62))
        row.checksum = draw(st.integers(0, 2**32 - 1))
    return row


def row_of(step: int, tensor: str = "x", **fields: Any) -> IndexRow:
    fields.setdefault("position", 0)
    return IndexRow(step, ModeKeys.TRAIN, step, tensor, 1.0, **fields)


def opened(data: Any, key: str = KEY) -> IndexFile:
    store = MemoryStore()
    store.write(key, [data])
    return IndexFile(store, key, NAME, ColumnCache())


def file_of(rows: list[IndexRow], seq: int = 3) -> bytes:
    return bytes(encode_index(newest_rows(rows_to_table(rows, "worker_0", seq))))


def as_dict(row: IndexRow, seq: int = 3) -> dict[str, Any]:
    """The row as an engine should show it."""
    found = {name: getattr(row, name, None) for name in SCHEMA.names}
    found |= dict.fromkeys(REDUCTION_NAMES) | row.reductions
    shape = None if row.shape is None else list(row.shape)
    return found | {"mode": row.mode.name, "worker": "worker_0", "seq": seq, "shape": shape}


def bits(value: Any) -> Any:
    """Something that tells NaN from None and -0.0 from 0.0, and finds two NaNs equal."""
    return struct.pack("<d", value) if isinstance(value, float) else value


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: bits(row[name]) for name in SCHEMA.names} for row in rows]


def survivors(rows: list[IndexRow]) -> list[IndexRow]:
    """Rows sorted by tensor and step, the last by position of each: written plainly."""
    newest: dict[tuple[bytes, int], IndexRow] = {}
    for row in rows:
        location = (row.tensor.encode(), row.step)
        if location not in newest or newest[location].position <= row.position:
            newest[location] = row
    return [newest[location] for location in sorted(newest)]


# ---- round trips


@settings(max_examples=120, deadline=None)
@given(st.lists(index_rows(), min_size=1, max_size=8))
def test_round_trip(rows: list[IndexRow]) -> None:
    expected = comparable([as_dict(row) for row in survivors(rows)])
    data = file_of(rows)
    assert comparable(opened(data).table().to_pylist()) == expected
    assert comparable(pq.read_table(io.BytesIO(data)).to_pylist()) == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(index_rows(), min_size=1, max_size=8))
def test_one_tensor_at_a_time(rows: list[IndexRow]) -> None:
    file = opened(file_of(rows))
    kept = survivors(rows)
    for tensor in {row.tensor for row in rows}:
        table = file.rows(tensor, SCHEMA.names)
        assert table is not None
        expected = [as_dict(row) for row in kept if row.tensor == tensor]
        assert comparable(table.to_pylist()) == comparable(expected)
    for step in {row.step for row in rows}:
        assert set(file.names_within(step, step + 1)) == {
            row.tensor for row in kept if row.step == step
        }
    modes: dict[str, int] = {}
    for row in kept:
        modes[row.tensor] = modes.get(row.tensor, 0) | mode_bit(row.mode)
    assert file.names == modes


@settings(max_examples=30, deadline=None)
@given(st.lists(index_rows(), min_size=1, max_size=8))
def test_several_row_groups(rows: list[IndexRow]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "ROWS_PER_GROUP", 2)
        data = file_of(rows)
    kept = survivors(rows)
    file = opened(data)
    assert file.metadata.num_row_groups == -(-len(kept) // 2)
    assert comparable(file.table().to_pylist()) == comparable([as_dict(row) for row in kept])
    for tensor in {row.tensor for row in rows}:
        table = file.rows(tensor, SCHEMA.names)
        assert table is not None
        expected = [as_dict(row) for row in kept if row.tensor == tensor]
        assert comparable(table.to_pylist()) == comparable(expected)


@pytest.mark.parametrize("shape", [None, (), (0,), (2, 3)])
def test_a_file_of_one_shape_only(shape: tuple[int, ...] | None) -> None:
    data = file_of([row_of(0, shape=shape), row_of(1, shape=shape)])
    expected = None if shape is None else list(shape)
    assert pq.read_table(io.BytesIO(data))["shape"].to_pylist() == [expected] * 2
    assert opened(data).table(["shape"])["shape"].to_pylist() == [expected] * 2


@pytest.mark.parametrize("value", [None, math.nan, -0.0, 5e-324, math.inf])
def test_a_column_of_one_value_only(value: float | None) -> None:
    reductions = {} if value is None else {"abs_mean": value}
    data = file_of([row_of(step, value=value, reductions=reductions) for step in range(3)])
    file = opened(data)
    for name in ("value", "abs_mean"):
        assert [bits(v) for v in file.table([name])[name].to_pylist()] == [bits(value)] * 3
        assert (name in file.present_columns()) == (value is not None)


def test_nan_payloads_survive() -> None:
    odd = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_DEAD_BEEF))[0]
    table = opened(file_of([row_of(0, value=odd)])).table(["value"])
    assert struct.pack("<d", table["value"].to_pylist()[0]) == struct.pack("<d", odd)


@pytest.mark.parametrize(
    "name",
    ["", " ", "a\0b", "n" * 3000, "n" * 5000, "ü" * 5000, "\U0010ffff" * 20, "\uffff", "é́", "a'b"],
    ids=lambda name: f"{name[:3]!r}*{len(name)}",
)
def test_unusual_tensor_names(name: str) -> None:
    rows = [row_of(0, name), row_of(1, name), row_of(0, "m"), row_of(0, "z")]
    file = opened(file_of(rows))
    table = file.rows(name, ["tensor", "step"])
    assert table is not None
    assert table.to_pylist() == [{"tensor": name, "step": step} for step in (0, 1)]
    assert set(file.names) == {name, "m", "z"}


def test_missing_tensor_name() -> None:
    file = opened(file_of([row_of(0, "b"), row_of(0, "d")]))
    for name in ("a", "c", "e", "", "bb"):
        assert file.rows(name, ["step"]) is None
    assert set(file.names_within(7, 7 + 1)) == set()


def test_no_rows_at_all() -> None:
    file = opened(encode_index(SCHEMA.empty_table()))
    assert file.table().num_rows == 0
    assert file.names == {}
    assert file.rows("x", ["step"]) is None


def test_steps_are_distinct() -> None:
    rows = [row_of(step, name) for step in (5, 2, 9) for name in "abc"]
    rows.append(IndexRow(5, ModeKeys.EVAL, 1, "d", 1.0, 0))
    steps = opened(file_of(rows, seq=4)).steps
    found = sorted(zip(steps.step, steps.mode, steps.mode_step, steps.seq, strict=True))
    assert found == [(2, 1, 2, 4), (5, 1, 5, 4), (5, 2, 1, 4), (9, 1, 9, 4)]
    assert opened(file_of(rows)).step_range() == (2, 9)


def test_only_requested_columns_are_read() -> None:
    file = opened(file_of([row_of(0, value=1.0)]))
    assert file.table(["step", "value"]).column_names == ["step", "value"]
    assert file.table([]).num_columns == 0


def test_a_large_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "ROWS_PER_GROUP", 20_000)
    rows = [
        row_of(step, f"t{n:02}", value=step + n / 100) for step in range(1000) for n in range(50)
    ]
    file = opened(file_of(rows))
    assert file.metadata.num_row_groups == 3
    table = file.rows("t37", ["step", "value"])
    assert table is not None
    assert table["step"].to_pylist() == list(range(1000))
    assert table["value"].to_pylist() == [step + 37 / 100 for step in range(1000)]
    assert len(file.names) == 50
    assert set(file.steps.step.tolist()) == set(range(1000))


# ---- the newest row of each


def test_the_highest_seq_wins() -> None:
    tables = [rows_to_table([row_of(0, value=float(seq))], "w", seq) for seq in (2, 10, 1)]
    (found,) = newest_rows(pa.concat_tables(tables)).to_pylist()
    assert (found["seq"], found["value"]) == (10, 10.0)


def test_within_a_segment_the_later_position_wins() -> None:
    rows = [
        row_of(0, position=5, value=5.0),
        row_of(0, position=7, value=7.0),
        row_of(0, value=0.0),
    ]
    assert newest_rows(rows_to_table(rows, "w", 0))["value"].to_pylist() == [7.0]


def test_last_of_equal_rows_is_kept() -> None:
    rows = [row_of(0, value=1.0), row_of(0, value=2.0)]
    assert newest_rows(rows_to_table(rows, "w", 0))["value"].to_pylist() == [2.0]


def test_rows_of_other_workers_steps_and_tensors_are_kept() -> None:
    rows = [row_of(step, name) for step in (0, 1) for name in ("a", "b")]
    table = pa.concat_tables([rows_to_table(rows, worker, 0) for worker in ("w1", "w0")])
    found = newest_rows(pa.concat_tables([table, table])).to_pylist()
    assert [(row["worker"], row["tensor"], row["step"]) for row in found] == [
        (worker, name, step) for worker in ("w0", "w1") for name in ("a", "b") for step in (0, 1)
    ]


@given(
    st.lists(st.tuples(st.sampled_from("aäb"), st.integers(0, 3), st.integers(0, 3)), max_size=15)
)
def test_newest_rows_matches_a_plain_implementation(places: list[tuple[str, int, int]]) -> None:
    tables = [
        rows_to_table([row_of(step, name, value=float(number))], "w", seq)
        for number, (name, step, seq) in enumerate(places)
    ]
    expected: dict[tuple[str, int], tuple[int, float]] = {}
    for number, (name, step, seq) in enumerate(places):
        expected[name, step] = max(expected.get((name, step), (-1, -1.0)), (seq, float(number)))
    everything = pa.concat_tables([SCHEMA.empty_table(), *tables], promote_options="default")
    found = newest_rows(everything).to_pylist()
    assert [(row["tensor"], row["step"]) for row in found] == sorted(expected)
    assert {(row["tensor"], row["step"]): (row["seq"], row["value"]) for row in found} == expected


# ---- other engines


def test_pyarrow_and_duckdb_read_a_run_as_one_table(tmp_path: Path) -> None:
    for number, names in enumerate([["a", "b"], ["c"]]):
        rows = [row_of(number, n, value=0.5, shape=(2,), reductions={"mean": 1.5}) for n in names]
        folder = tmp_path / "index" / f"{number:09d}"
        folder.mkdir(parents=True)
        (folder / f"{number:012d}-000000_w.parquet").write_bytes(file_of(rows))
    query = "select tensor, step, mode, shape, mean, l2 from '{}/index/**/*.parquet' order by 1"
    found = duckdb.sql(query.format(tmp_path)).fetchall()
    assert found == [
        ("a", 0, "TRAIN", [2], 1.5, None),
        ("b", 0, "TRAIN", [2], 1.5, None),
        ("c", 1, "TRAIN", [2], 1.5, None),
    ]
    assert pq.read_table(tmp_path / "index").num_rows == 3


def test_duckdb_distinguishes_nan_from_null(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(file_of([row_of(0, value=math.nan), row_of(1), row_of(2, value=-math.inf)]))
    query = f"select step, isnan(value), value is null from '{path}' order by 1"
    assert duckdb.sql(query).fetchall() == [
        (0, True, False),
        (1, None, True),
        (2, False, False),
    ]


def test_duckdb_may_prune_by_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "ROWS_PER_GROUP", 2)
    path = tmp_path / "x.parquet"
    path.write_bytes(file_of([row_of(step, name) for name in "abä" for step in range(5)]))
    for name in "abä":
        query = f"select list(step order by step) from '{path}' where tensor = '{name}'"
        assert duckdb.sql(query).fetchall() == [([0, 1, 2, 3, 4],)]


def test_page_checksums_are_on() -> None:
    data = bytearray(file_of([row_of(step, value=math.pi * step) for step in range(100)]))
    metadata = pq.read_metadata(io.BytesIO(data))
    chunk = metadata.row_group(0).column(SCHEMA.names.index("value"))
    data[chunk.data_page_offset + chunk.total_compressed_size - 5] ^= 1
    with pytest.raises(OSError, match=r"(?i)crc|checksum"):
        pq.read_table(io.BytesIO(data), page_checksum_verification=True)


# ---- damage


def assert_damaged(data: bytes) -> None:
    with pytest.raises(IndexReaderException) as caught:
        opened(data).table()
    assert KEY in str(caught.value)


ONE_ROW = file_of([row_of(7, "layer.weight", value=0.5, shape=(2, 3), reductions={"l2": 2.0})])


@pytest.mark.parametrize("part", range(8))
def test_every_byte_of_a_small_file_counts(part: int) -> None:
    damaged = bytearray(ONE_ROW)
    for location in range(part, len(ONE_ROW), 8):
        damaged[location] ^= 1 << part
        assert_damaged(bytes(damaged))
        damaged[location] ^= 1 << part


def test_every_bit_of_the_checksum_footer_counts() -> None:
    start = ONE_ROW.rindex(b"crc32c:")
    damaged = bytearray(ONE_ROW)
    for bit in range(start * 8, len(ONE_ROW) * 8):
        damaged[bit // 8] ^= 1 << bit % 8
        assert_damaged(bytes(damaged))
        damaged[bit // 8] ^= 1 << bit % 8


def test_random_bytes_of_a_large_file_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "ROWS_PER_GROUP", 10_000)
    chance = random.Random(0)
    rows = [
        row_of(step, f"t{n}", value=chance.random(), shape=(n, 3), reductions={"l2": float(step)})
        for step in range(5000)
        for n in range(5)
    ]
    damaged = bytearray(file_of(rows))
    for _ in range(60):
        location, bit = chance.randrange(len(damaged)), chance.randrange(8)
        damaged[location] ^= 1 << bit
        assert_damaged(bytes(damaged))
        damaged[location] ^= 1 << bit
    opened(bytes(damaged)).table()


def test_check_all_finds_damage_in_unread_columns() -> None:
    metadata = pq.read_metadata(io.BytesIO(ONE_ROW))
    for leaf in range(metadata.num_columns):
        column = metadata.row_group(0).column(leaf)
        damaged = bytearray(ONE_ROW)
        damaged[column.data_page_offset + column.total_compressed_size // 2] ^= 1
        with pytest.raises(IndexReaderException, match=KEY):
            opened(bytes(damaged)).check_all()


def test_every_cut_is_found() -> None:
    for length in range(0, len(ONE_ROW), 3):
        assert_damaged(ONE_ROW[:length])
        assert_damaged(ONE_ROW[len(ONE_ROW) - length :])


@pytest.mark.parametrize("location", [0, 4, 100, -1000, -8, -4])
def test_inserted_bytes_are_found(location: int) -> None:
    assert_damaged(ONE_ROW[:location] + b"\0" + ONE_ROW[location:])
    assert_damaged(ONE_ROW + b"\0")


def test_chunks_of_another_file_are_found() -> None:
    other = file_of([row_of(7, "layer.weight", value=0.7, shape=(2, 3), reductions={"l2": 2.0})])
    assert len(other) == len(ONE_ROW)
    (footer_length,) = struct.unpack("<I", ONE_ROW[-8:-4])
    start = len(ONE_ROW) - 8 - footer_length
    assert_damaged(other[:start] + ONE_ROW[start:])


def plain_parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"step": [1, 2]}), sink)
    return sink.getvalue()


def unsealed_index() -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows_to_table([row_of(0)], "w", 0), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1",
        b"PAR1PAR1",
        b"PAR1\xff\xff\xff\xffPAR1",
        b"PAR1\x00\x00\x00\x00PAR1",
        b"some text\n" * 30,
        bytes(1000),
        plain_parquet(),
        unsealed_index(),
    ],
    ids=["empty", "magic", "twice", "footer", "nothing", "text", "zeros", "parquet", "unsealed"],
)
def test_other_files_are_rejected(data: bytes) -> None:
    assert_damaged(data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    assert_damaged(data)
    assert_damaged(data + struct.pack("<I4s", len(data), b"PAR1"))


def test_deleted_file() -> None:
    with pytest.raises(KeyError):
        IndexFile(MemoryStore(), KEY, NAME, ColumnCache())


def test_newest_row_determines_the_mode_step() -> None:
    old = [row_of(5, "a"), row_of(5, "b")]
    new = row_of(5, "b")
    new.mode_step = 2
    table = pa.concat_tables([rows_to_table(old, "w", 0), rows_to_table([new], "w", 1)])
    steps = opened(encode_index(newest_rows(table))).steps
    assert (steps.step.tolist(), steps.mode_step.tolist(), steps.seq.tolist()) == ([5], [2], [1])


def test_unknown_mode_is_reported() -> None:
    table = rows_to_table([row_of(0, "a")], "w", 0)
    mode = pa.array(["FOO"]).dictionary_encode()
    column = table.column_names.index("mode")
    field = table.schema.field("mode")
    with pytest.raises(IndexReaderException, match="FOO"):
        _ = opened(encode_index(table.set_column(column, field, mode))).steps
