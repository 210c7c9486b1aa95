"""The index of format v2: one Parquet row per (worker, step, tensor), with checksums.

Rows are sorted by tensor, then step, so a time series is one range of rows in a row group, and the
statistics of the row groups tell which ones have it. All files of all runs have the same columns,
so every engine reads a run as one data set.

Parquet's own page checksums cover neither page headers nor the footer. The metadata in the footer
therefore has the CRC32C of every column chunk and of the footer itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from smdebug.reductions import REDUCTION_NAMES
from smdebug.storage.arrow import from_numpy, pa, pc, pq, to_numpy
from smdebug.storage.format.checksum import (
    PARQUET_KEY,
    fill_parquet_checksums,
    parquet_placeholder,
)
from smdebug.storage.segment_summary import one_array
from smdebug.storage.untrusted import TAIL_BYTES
from smdebug.storage.untrusted.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from smdebug.mode_keys import ModeKeys
    from smdebug.storage.batch import BlockSchema

ROWS_PER_GROUP = 1 << 17
FORMAT_KEY, FORMAT = b"smdebug.format", b"2"
# The ID of the run that the file belongs to.
RUN_KEY = b"smdebug.run"


_TEXT = pa.dictionary(pa.int32(), pa.string())
Ints = npt.NDArray[np.int64]

SCHEMA = pa.schema(
    [
        pa.field("step", pa.int64(), nullable=False),
        pa.field("mode", _TEXT, nullable=False),
        pa.field("mode_step", pa.int64(), nullable=False),
        pa.field("worker", _TEXT, nullable=False),
        pa.field("tensor", _TEXT, nullable=False),
        pa.field("time", pa.float64()),
        pa.field("dtype", _TEXT),
        pa.field("shape", pa.list_(pa.field("element", pa.int64()))),
        pa.field("event_file", _TEXT),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int64()),
        # The CRC32C of the event's payload: ties a row to its own record, not to any intact one.
        pa.field("checksum", pa.int64()),
        # The XXH3 of large payloads, which takes half the time of a CRC32C to verify.
        pa.field("digest", pa.uint64()),
        pa.field("value", pa.float64()),
        # The position within the step, in execution order.
        pa.field("position", pa.int32(), nullable=False),
        # The segment of the row: for one (worker, step, tensor) the highest wins.
        pa.field("seq", pa.int32(), nullable=False),
        *(pa.field(name, pa.float64()) for name in REDUCTION_NAMES),
    ]
)
# Created once: that takes longer than reading a small table.
EMPTY = pa.Table.from_batches([], SCHEMA)
TEXT_COLUMNS = [name for name in SCHEMA.names if SCHEMA.field(name).type == _TEXT]
_DELTA_COLUMNS = ("step", "mode_step", "offset", "length", "position", "seq")
_LEAVES = [name if name != "shape" else "shape.list.element" for name in SCHEMA.names]


@dataclass
class IndexRow:
    """One row, before it is written."""

    step: int
    mode: ModeKeys
    mode_step: int
    tensor: str
    time: float
    position: int
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    event_file: str | None = None
    offset: int | None = None
    length: int | None = None
    checksum: int | None = None
    digest: int | None = None
    value: float | None = None
    reductions: dict[str, float] = field(default_factory=dict)


_ROW_COLUMNS = (
    "step", "mode_step", "tensor", "time", "position", "dtype", "shape", "event_file", "offset",
    "length", "checksum", "digest", "value",
)  # fmt: skip


def rows_to_table(rows: Sequence[IndexRow], worker: str, seq: int) -> pa.Table:
    """Convert rows of one worker and segment to a table, without unused reductions."""
    columns = {name: [getattr(row, name) for row in rows] for name in _ROW_COLUMNS}
    columns["mode"] = [row.mode.name for row in rows]
    used = {name for row in rows for name in row.reductions}
    for name in used:
        columns[name] = [row.reductions.get(name) for row in rows]
    arrays: dict[str, Any] = {}
    for name in SCHEMA.names:
        kind = SCHEMA.field(name).type
        if name == "worker":
            codes = pa.array(np.zeros(len(rows), np.int32))
            arrays[name] = pa.DictionaryArray.from_arrays(codes, pa.array([worker]))
        elif name == "seq":
            arrays[name] = pa.array(np.full(len(rows), seq, np.int32))
        elif name in columns and kind == _TEXT:
            arrays[name] = pa.array(columns[name], pa.string()).dictionary_encode()
        elif name in columns:
            # from_pandas stays off: a NaN is a value, not a missing one.
            arrays[name] = pa.array(columns[name], kind, from_pandas=False)
    return table_of(arrays)


@dataclass
class BlockRows:
    """The rows of a block, before they are written: one step, all tensors of a schema."""

    step: int
    mode: ModeKeys
    mode_step: int
    time: float
    positions: Ints
    schema: BlockSchema
    reductions: Mapping[str, npt.NDArray[np.float64]]
    # Where the consecutive records start, when raw values are saved.
    offset: int | None = None
    lengths: list[int] = field(default_factory=list)
    checksums: list[int] = field(default_factory=list)
    # The values themselves, when they are single numbers.
    numbers: npt.NDArray[np.float64] | None = None


def blocks_to_table(
    blocks: Sequence[BlockRows], worker: str, seq: int, event_file: str
) -> list[pa.Table]:
    """Convert blocks of one worker and segment to tables, without a loop over rows."""
    alike: dict[Any, list[BlockRows]] = {}
    for block in blocks:
        kinds = (block.offset is None, block.numbers is None)
        key = (block.schema, block.mode, tuple(block.reductions), kinds)
        alike.setdefault(key, []).append(block)
    return [_alike_table(group, worker, seq, event_file) for group in alike.values()]


def _alike_table(blocks: list[BlockRows], worker: str, seq: int, event_file: str) -> pa.Table:
    """Return the table of blocks with the same schema, mode and reductions."""
    schema, size = blocks[0].schema, len(blocks[0].schema.names)
    rows = size * len(blocks)
    tensors = np.tile(np.arange(size, dtype=np.int32), len(blocks))

    def each_step(name: str) -> Any:
        return np.repeat([getattr(block, name) for block in blocks], size)

    def one_text(text: str) -> Any:
        codes = pa.array(np.zeros(rows, np.int32))
        return pa.DictionaryArray.from_arrays(codes, pa.array([text], pa.string()))

    names = pa.array(schema.names, pa.string())
    dtypes = pa.array(schema.dtypes, pa.string()).dictionary_encode()
    shapes = pa.array(schema.shapes, SCHEMA.field("shape").type)
    positions = np.concatenate([block.positions for block in blocks])
    columns = {
        "step": pa.array(each_step("step"), pa.int64()),
        "mode": one_text(blocks[0].mode.name),
        "mode_step": pa.array(each_step("mode_step"), pa.int64()),
        "worker": one_text(worker),
        "tensor": pa.DictionaryArray.from_arrays(pa.array(tensors), names),
        "time": pa.array(each_step("time"), pa.float64()),
        "dtype": dtypes.take(pa.array(tensors)),
        "shape": shapes.take(pa.array(tensors)),
        "position": pa.array(positions.astype(np.int32)),
        "seq": pa.array(np.full(rows, seq, np.int32)),
    }
    if blocks[0].offset is not None:
        lengths = np.array([block.lengths for block in blocks], np.int64)
        starts = np.array([[block.offset] for block in blocks], np.int64)
        offsets = starts + np.cumsum(lengths, axis=1) - lengths
        checksums = np.array([block.checksums for block in blocks], np.int64)
        columns["event_file"] = one_text(event_file)
        columns["offset"] = pa.array(offsets.reshape(-1))
        columns["length"] = pa.array(lengths.reshape(-1))
        columns["checksum"] = pa.array(checksums.reshape(-1))
    if blocks[0].numbers is not None:
        values = np.concatenate([block.numbers for block in blocks])
        columns["value"] = pa.array(values, pa.float64(), from_pandas=False)
    for name in blocks[0].reductions:
        values = np.concatenate([block.reductions[name] for block in blocks])
        # from_pandas stays off: a NaN is a value, not a missing one.
        columns[name] = pa.array(values, pa.float64(), from_pandas=False)
    return table_of({name: columns[name] for name in SCHEMA.names if name in columns})


def table_of(columns: Mapping[str, Any]) -> pa.Table:
    """Make a table of columns of the index, with the types of the schema."""
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    return pa.Table.from_arrays(list(columns.values()), schema=schema)


def newest_rows(table: pa.Table) -> pa.Table:
    """Sort rows by worker, tensor and step, and keep the newest row of each."""
    table = table.unify_dictionaries()
    workers, tensors = _ranks(table["worker"]), _ranks(table["tensor"])
    steps, seqs = to_numpy(table["step"]), to_numpy(table["seq"])
    if _is_sorted(workers, tensors, steps):
        return table
    # A step that saves one name twice keeps the later: stable sort, last of equals.
    order = np.lexsort((to_numpy(table["position"]), seqs, steps, tensors, workers))
    steps, tensors, workers = steps[order], tensors[order], workers[order]
    last = np.ones(len(order), bool)
    last[:-1] = (
        (steps[1:] != steps[:-1]) | (tensors[1:] != tensors[:-1]) | (workers[1:] != workers[:-1])
    )
    return table.take(from_numpy(order[last]))


def _is_sorted(workers: Ints, tensors: Ints, steps: Ints) -> bool:
    """Return whether rows are sorted and no two are of the same worker, tensor and step."""
    later = steps[1:] > steps[:-1]
    for column in (tensors, workers):
        later = (column[1:] > column[:-1]) | ((column[1:] == column[:-1]) & later)
    return bool(later.all())


def _ranks(column: pa.ChunkedArray) -> Ints:
    """Return numbers that sort as the strings of a dictionary column do."""
    array = one_array(column)
    ranks: Ints = to_numpy(pc.rank(array.dictionary))
    codes: Ints = to_numpy(array.indices)
    return ranks[codes]


def _with_all_columns(table: pa.Table) -> pa.Table:
    nulls: dict[Any, Any] = {}
    columns = {}
    for name in SCHEMA.names:
        kind = SCHEMA.field(name).type
        if name in table.column_names:
            columns[name] = table[name]
        else:
            # All columns of a type share one array of nulls: there are many, and they are long.
            if kind not in nulls:
                nulls[kind] = pa.nulls(table.num_rows, kind)
            columns[name] = nulls[kind]
    return table_of(columns)


def encode_index(table: pa.Table, run: str | None = None) -> memoryview:
    """Encode a sorted table as a Parquet file with checksums; columns it lacks become nulls.

    Args:
        table: the rows.
        run: the ID of the run.
    """
    table = _with_all_columns(table)
    per_group = _rows_per_group(table)
    groups = -(-table.num_rows // per_group) or 1
    chunks = len(_LEAVES) * groups
    placeholder = parquet_placeholder(chunks)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        SCHEMA,
        compression="zstd",
        use_dictionary=[*TEXT_COLUMNS, "time", "shape.list.element"],
        column_encoding={
            **dict.fromkeys(_DELTA_COLUMNS, "DELTA_BINARY_PACKED"),
            **dict.fromkeys(("value", *REDUCTION_NAMES), "BYTE_STREAM_SPLIT"),
        },
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.write_table(table, row_group_size=per_group)
        named = {} if run is None else {RUN_KEY: run.encode()}
        writer.add_key_value_metadata({FORMAT_KEY: FORMAT, **named, PARQUET_KEY: placeholder})
    return with_checksums(bytearray(sink.getvalue()), placeholder)


def _rows_per_group(table: pa.Table) -> int:
    """Return fewer rows for very long names: readers limit the bytes of a column."""
    names = one_array(table["tensor"]).dictionary
    longest = pc.max(pc.binary_length(names)).as_py() or 1
    return max(min(ROWS_PER_GROUP, CHUNK_BYTES // longest), 1)


def with_checksums(data: bytearray, placeholder: bytes) -> memoryview:
    """Return a file with its checksums in the place of the placeholder."""
    metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(data)))
    footer_start = len(data) - TAIL_BYTES - metadata.serialized_size
    fill_parquet_checksums(data, placeholder, footer_start, chunk_ranges(metadata))
    return memoryview(data).toreadonly()


def chunk_ranges(metadata: pq.FileMetaData) -> list[tuple[int, int]]:
    """Return where every column chunk starts and ends, row group by row group."""
    ranges = []
    for group in range(metadata.num_row_groups):
        for leaf in range(metadata.num_columns):
            column = metadata.row_group(group).column(leaf)
            first = column.dictionary_page_offset
            first = column.data_page_offset if first is None else first
            ranges.append((first, first + column.total_compressed_size))
    return ranges
