"""The index of a run as one table: a Parquet file or data set, or CSV."""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.exceptions import SMDebugValueError
from smdebug.storage.arrow import from_list, from_numpy, pa, pc, pq, to_numpy
from smdebug.storage.format.dtypes import dtype_name
from smdebug.storage.raw_tensors import VALUE_COLUMNS
from smdebug.storage.v2.index import SCHEMA, TEXT_COLUMNS
from smdebug.trials.export.target import ChunkSink, ExportResult, target_directory, target_file
from smdebug.trials.export.v1_backfill import completed_rows
from smdebug.trials.selection import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.reductions import Array
    from smdebug.trials.selection import Selection, Tell

# Where the bytes of a tensor lie says nothing outside of the run.
_PLACES = ("event_file", "offset", "length", "checksum", "digest", "seq")
_ROWS_PER_GROUP, _BYTES_PER_GROUP = 1 << 17, 64 << 20
_ROWS_PER_FILE, _BYTES_PER_FILE = 1 << 22, 1 << 30
# A number of one byte takes eight as a double.
_BYTES_AT_ONCE = 16 << 20
_PART = re.compile(r"part-\d{5}\.parquet", re.ASCII)
# Large in memory only: a tensor may have more elements than 32 bits can count.
_VALUES = pa.large_list(pa.field("element", pa.float64()))


def export_parquet(
    selection: Selection,
    out: str,
    *,
    values: bool = False,
    force: bool = False,
    tell: Tell | None = None,
) -> ExportResult:
    """Writes the rows of a run as Parquet: one for each worker, step and tensor.

    Columns that hold nothing in the whole run are left out.

    Args:
        selection: what of the run.
        out: a file, or a directory for a data set when it ends in a slash; or such a URL.
        values: add the raw values, as lists of doubles. Strings and complex numbers have none.
        force: replace what is there.
        tell: is told how many steps of how many are done.

    Raises:
        SMDebugValueError: there is something already.

    Example:
        >>> export_parquet(Selection(trial), "run.parquet")  # doctest: +SKIP
        ExportResult(out='run.parquet', files=1, steps=100, rows=2000, left_out={}, widened={})
    """
    done = ExportResult(out)
    columns = _columns(selection, values)
    kinds = _plain_schema(columns, values)
    if not out.endswith("/"):
        store, key = target_file(selection.trial.path, out, force)
        tables = _gathered(_rows(selection, columns, values, done, tell))
        store.write(key, _parquet(tables, kinds))
        done.files = 1
        return done
    store = target_directory(selection.trial.path, out, force, _PART)
    tables = _gathered(_rows(selection, columns, values, done, tell))
    for number in count():
        first = next(tables, None)
        if first is None:
            return done
        some = _some(first, tables)
        store.write(f"part-{number:05d}.parquet", _parquet(some, kinds))
        done.files += 1
    return done


def export_csv(
    selection: Selection, out: str, *, force: bool = False, tell: Tell | None = None
) -> ExportResult:
    """Writes the rows of a run as CSV, in UTF-8, as RFC 4180 has it but for the ends of lines.

    NaN is `nan`, what was not saved is empty, a shape is `[2,3]`. A name that a spreadsheet would
    take for a formula has an apostrophe before it.

    Args:
        selection: what of the run.
        out: a file or a URL.
        force: replace what is there.
        tell: is told how many steps of how many are done.

    Raises:
        SMDebugValueError: there is something already.
    """
    done = ExportResult(out, files=1)
    columns = _columns(selection, values=False)
    store, key = target_file(selection.trial.path, out, force)
    store.write(key, _csv(_rows(selection, columns, False, done, tell), columns))
    return done


def _columns(selection: Selection, values: bool) -> list[str]:
    present = [name for name in selection.trial.present_columns() if name not in _PLACES]
    return list(dict.fromkeys([*present, "dtype", "shape"])) if values else present


def _plain_schema(columns: list[str], values: bool) -> Any:
    """The types of the columns, as every engine has them."""
    fields = [
        pa.field(name, pa.string() if name in TEXT_COLUMNS else SCHEMA.field(name).type)
        for name in columns
    ]
    if values:
        fields.append(pa.field("values", _VALUES))
    return pa.schema(fields)


def _rows(
    selection: Selection, columns: list[str], values: bool, done: ExportResult, tell: Tell | None
) -> Iterator[Any]:
    kinds = _plain_schema(columns, False)
    seen: set[int] = set()
    for table in selection.tables([*columns, *VALUE_COLUMNS, "time"], tell, _ROWS_PER_GROUP):
        seen.update(np.unique(to_numpy(table["step"])).tolist())
        for piece in pieces(table, _BYTES_AT_ONCE) if values else [table]:
            raw = selection.trial.row_values(piece) if values else None
            piece = completed_rows(selection.trial, piece, raw)
            plain = piece.select(columns).cast(kinds)
            if raw is not None:
                plain = plain.append_column("values", _values(raw, piece, done))
            done.rows += plain.num_rows
            yield plain
    done.steps = len(seen)
    if not done.rows:
        raise SMDebugValueError(
            f"there must be something to write, got nothing of {selection.trial.path} that has "
            "these tensors, this mode, this worker and these steps"
        )


def _values(raw: list[Array | None], table: Any, done: ExportResult) -> Any:
    """The raw values of rows, flattened."""
    found: list[Array | None] = []
    for row, value in enumerate(raw):
        if value is not None and value.dtype.kind in "USOc":
            name, dtype = table["tensor"][row].as_py(), dtype_name(value.dtype)
            done.left_out[name] = f"values of {dtype} are no doubles"
            value = None
        found.append(None if value is None else value.reshape(-1).astype(np.float64))
    sizes = [0 if value is None else value.size for value in found]
    ends = np.cumsum([0, *sizes], dtype=np.int64)
    flat = np.concatenate([np.zeros(0), *(value for value in found if value is not None)])
    return pa.LargeListArray.from_arrays(
        from_numpy(ends),
        from_numpy(flat),
        type=_VALUES,
        mask=from_list([value is None for value in found], pa.bool_()),
    )


def _gathered(tables: Iterator[Any]) -> Iterator[Any]:
    """Joins small tables, so that every row group is worth its while."""
    waiting: list[Any] = []
    for table in tables:
        waiting.append(table)
        if (
            sum(each.num_rows for each in waiting) >= _ROWS_PER_GROUP
            or sum(each.nbytes for each in waiting) >= _BYTES_PER_GROUP
        ):
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _some(first: Any, tables: Iterator[Any]) -> Iterator[Any]:
    """The tables of one file of a data set."""
    rows, size = first.num_rows, first.nbytes
    yield first
    while rows < _ROWS_PER_FILE and size < _BYTES_PER_FILE:
        table = next(tables, None)
        if table is None:
            return
        rows, size = rows + table.num_rows, size + table.nbytes
        yield table


def _parquet(tables: Iterator[Any], kinds: Any) -> Iterator[bytes]:
    sink = ChunkSink()
    doubles = [each.name for each in kinds if each.type == pa.float64() and each.name != "time"]
    if "values" in kinds.names:
        doubles.append("values.list.element")
    with pq.ParquetWriter(
        sink,
        kinds,
        compression="zstd",
        # As the index itself is written: a dictionary of measured numbers gains nothing.
        use_dictionary=[*TEXT_COLUMNS, "time", "shape.list.element"],
        column_encoding=dict.fromkeys(doubles, "BYTE_STREAM_SPLIT"),
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
            yield from sink.take()
    yield from sink.take()


def _csv(tables: Iterator[Any], columns: list[str]) -> Iterator[bytes]:
    from pyarrow import csv

    kinds = [pa.field(name, _csv_kind(name)) for name in columns]
    sink = ChunkSink()
    with csv.CSVWriter(sink, pa.schema(kinds)) as writer:
        for table in tables:
            writer.write_table(_without_formulas(_without_lists(table)))
            yield from sink.take()
    yield from sink.take()


def _csv_kind(name: str) -> Any:
    kind = SCHEMA.field(name).type
    return pa.string() if name in TEXT_COLUMNS or pa.types.is_list(kind) else kind


def _without_formulas(table: Any) -> Any:
    """Puts an apostrophe before names that begin as formulas of spreadsheets do."""
    for place, name in enumerate(table.column_names):
        if name in TEXT_COLUMNS:
            texts = pc.replace_substring_regex(table[name], r"^([=+\-@\t\r\n])", r"'\1")
            table = table.set_column(place, name, texts)
    return table


def _without_lists(table: Any) -> Any:
    if "shape" not in table.column_names:
        return table
    place = table.column_names.index("shape")
    sizes = table["shape"].cast(pa.list_(pa.string()))
    comma, opening, closing, nothing = from_list([",", "[", "]", ""], pa.string())
    joined = pc.binary_join(sizes, comma)
    texts = pc.binary_join_element_wise(opening, joined, closing, nothing)
    return table.set_column(place, "shape", texts)
