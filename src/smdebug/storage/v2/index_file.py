"""Reader of one index file of format v2: columns and row groups on demand, each verified once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import crc32c
import numpy as np

from smdebug.exceptions import IndexReaderException
from smdebug.storage.arrow import PARQUET_ERRORS, from_numpy, pa, pq, to_numpy
from smdebug.storage.format.checksum import read_parquet_checksums
from smdebug.storage.segment_summary import (
    StepArrays,
    distinct_names,
    distinct_steps,
    mode_numbers,
    one_array,
)
from smdebug.storage.untrusted import ParquetFooter
from smdebug.storage.v2.index import (
    EMPTY,
    ROWS_PER_GROUP,
    RUN_KEY,
    SCHEMA,
    TEXT_COLUMNS,
    table_of,
)
from smdebug.storage.v2.index_bytes import IndexBytes
from smdebug.storage.v2.index_schema import REQUIRED, check_column, check_schema, check_steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.storage.format.keys import IndexName
    from smdebug.storage.stores.base import Store

# Files of up to this many rows are decoded whole at first use: a call costs more than rows.
_SMALL = 8192


class ColumnCache:
    """LRU cache of decoded data, limited in bytes."""

    def __init__(self, limit: int = 256 << 20) -> None:
        self._limit = limit
        self._size = 0
        self._columns: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> Any:
        with self._lock:
            if key in self._columns:
                self._columns.move_to_end(key)
            return self._columns.get(key)

    def put(self, key: Any, column: Any) -> None:
        with self._lock:
            replaced = self._columns.pop(key, None)
            self._size += column.nbytes - (0 if replaced is None else replaced.nbytes)
            self._columns[key] = column
            while self._size > self._limit and len(self._columns) > 1:
                _, dropped = self._columns.popitem(last=False)
                self._size -= dropped.nbytes

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._columns.clear()
            self._size = 0


class IndexFile:
    """One index file; a `Segment`.

    Opening reads and checks the footer only. Every column chunk is verified
    before it is decoded.

    Attributes:
        metadata: the metadata of the footer.
        nbytes: the size of the file.
        run: the run ID; None if it has none.

    Raises:
        IndexReaderException: the file is damaged, truncated, or not an index file.
        KeyError: the file does not exist.
    """

    def __init__(self, store: Store, key: str, name: IndexName, cache: ColumnCache) -> None:
        self.key = key
        self.worker = name.worker
        self._cache = cache
        self._bytes = IndexBytes(store, key)
        # Column chunks whose checksums, and whose pages, were verified.
        self._checked: set[int] = set()
        self._validated: set[int] = set()
        try:
            self._open()
        except IndexReaderException as error:
            raise IndexReaderException(f"{key}: {error}") from None
        except PARQUET_ERRORS as error:
            raise IndexReaderException(f"{key}: not a Parquet file: {error}") from error

    def _open(self) -> None:
        footer = self._bytes.footer()
        self._checksums = read_parquet_checksums(footer)
        self._footer = ParquetFooter(footer, ROWS_PER_GROUP)
        self.metadata = metadata = self._footer.metadata
        run = (metadata.metadata or {}).get(RUN_KEY)
        self.run = None if run is None else run.decode("utf-8", "replace")
        self._ranges = [(chunk.first, chunk.end) for chunk in self._footer.chunks]
        if len(self._ranges) != len(self._checksums):
            raise IndexReaderException("the number of checksums is not that of the column chunks")
        end = max((end for _, end in self._ranges), default=4)
        self.nbytes = end + len(footer)
        self._bytes.set_size(self.nbytes)
        self._file = pq.ParquetFile(
            pa.BufferReader(self._bytes.buffer()), metadata=metadata, read_dictionary=TEXT_COLUMNS
        )
        check_schema(self._file.schema_arrow)
        self._leaf = {
            metadata.schema.column(leaf).path.split(".")[0]: leaf
            for leaf in range(metadata.num_columns)
        }
        self._steps: StepArrays | None = None
        self._names: dict[str, int] | None = None
        self._row_ranges: dict[int, dict[str, tuple[int, int]]] = {}
        self._known: dict[tuple[int, str], Any] = {}

    def check_name(self, name: IndexName) -> None:
        """Compare the rows with the name of the file, by the statistics alone.

        Raises:
            IndexReaderException: they contradict the name, as in a file that was renamed.
        """
        low, high = self.step_range()
        if low <= high and low != name.step:
            raise IndexReaderException(
                f"{self.key}: the file starts with step {low}, its name with {name.step}"
            )
        for group in range(self.metadata.num_row_groups):
            workers, seqs = self._bounds(group, "worker"), self._bounds(group, "seq")
            if workers is not None and workers != (name.worker, name.worker):
                raise IndexReaderException(
                    f"{self.key}: the file has rows of worker {workers[0]}, not of {name.worker}"
                )
            if seqs is not None and name.seq is not None and seqs[1] > name.seq:
                raise IndexReaderException(
                    f"{self.key}: the file has rows of the later segment {seqs[1]}"
                )

    # ---- steps and names

    @property
    def steps(self) -> StepArrays:
        if self._steps is None:
            self._read_summary()
        assert self._steps is not None
        return self._steps

    @property
    def names(self) -> dict[str, int]:
        if self._names is None:
            self._read_summary()
        assert self._names is not None
        return self._names

    def step_range(self) -> tuple[int, int]:
        """Return the first and last step, from the statistics alone."""
        groups = range(self.metadata.num_row_groups)
        bounds = [found for group in groups if (found := self._bounds(group, "step"))]
        if not bounds:
            return 0, -1
        return min(low for low, _ in bounds), max(high for _, high in bounds)

    def _read_summary(self) -> None:
        chunks = []
        names: dict[str, int] = {}
        for group in range(self.metadata.num_row_groups):
            columns = self._columns(
                group, ["step", "mode", "mode_step", "seq", "tensor"], keep=False
            )
            mode = mode_numbers(columns["mode"])
            check_steps(columns)
            chunks.append(distinct_steps(columns, mode))
            tensor = columns["tensor"]
            codes = to_numpy(tensor.indices)
            for name, bits in distinct_names(tensor.dictionary, codes, mode):
                names[name] = names.get(name, 0) | bits
        self._steps = StepArrays.concatenate(chunks)
        self._names = names

    # ---- rows

    def rows(
        self, tensor: str, columns: list[str], steps: set[int] | None = None
    ) -> pa.Table | None:
        chunks = []
        for group in range(self.metadata.num_row_groups):
            if not self._may_hold(group, "tensor", tensor):
                continue
            rows = self._ranges_in(group).get(tensor)
            if rows is None:
                continue
            chunks.append(self._slice(group, columns, *rows))
        return pa.concat_tables(chunks) if chunks else None

    def _slice(self, group: int, columns: list[str], first: int, end: int) -> pa.Table:
        present = [name for name in columns if self._present(group, name)]
        found = self._columns(group, present)
        # Copied: a slice would keep the columns of the whole group in memory.
        rows = from_numpy(np.arange(first, end))
        return table_of(
            {
                name: found[name].take(rows)
                if name in found
                else pa.nulls(end - first, SCHEMA.field(name).type)
                for name in columns
            }
        )

    def names_within(self, begin: int, end: int) -> dict[str, int]:
        low, high = self.step_range()
        if begin <= low and high < end:
            return self.names
        found: dict[str, int] = {}
        for group in range(self.metadata.num_row_groups):
            columns = self._columns(group, ["step", "mode", "tensor"])
            steps = to_numpy(columns["step"])
            hits = (steps >= begin) & (steps < end)
            codes = to_numpy(columns["tensor"].indices)[hits]
            mode = mode_numbers(columns["mode"])[hits]
            for name, bits in distinct_names(columns["tensor"].dictionary, codes, mode):
                found[name] = found.get(name, 0) | bits
        return found

    def table(self, columns: list[str] | None = None) -> pa.Table:
        names = SCHEMA.names if columns is None else columns
        chunks = [EMPTY.select(names)]
        for group in range(self.metadata.num_row_groups):
            found = self._columns(group, names, keep=False)
            chunks.append(table_of({name: found[name] for name in names}))
        return pa.concat_tables(chunks)

    def present_columns(self) -> set[str]:
        """Return the columns with at least one value."""
        groups = range(self.metadata.num_row_groups)
        return {name for name in SCHEMA.names for group in groups if self._present(group, name)}

    def group_table(self, group: int, columns: list[str]) -> pa.Table:
        """Return the rows of one row group."""
        found = self._columns(group, columns, keep=False)
        return table_of({name: found[name] for name in columns})

    def check_all(self) -> None:
        """Verify every byte of the file.

        Raises:
            IndexReaderException: one of them was changed.
        """
        self._bytes.check_magic()
        for group in range(self.metadata.num_row_groups):
            self._verify(group, self._leaf)

    def check_magic(self) -> None:
        """Verify the first bytes, which belong to no column and are not read otherwise."""
        self._bytes.check_magic()

    def damaged_columns(self, group: int) -> list[tuple[str, int]]:
        """Return the columns of a row group that fail their checksums, and where they start."""
        base = group * self.metadata.num_columns
        self._bytes.fetch(self._ranges[base : base + self.metadata.num_columns])
        found = []
        for name, leaf in self._leaf.items():
            try:
                self._verify(group, [name], along=False)
            except IndexReaderException:
                found.append((name, self._ranges[base + leaf][0]))
        return found

    def _ranges_in(self, group: int) -> dict[str, tuple[int, int]]:
        if group not in self._row_ranges:
            tensor = self._columns(group, ["tensor"])["tensor"]
            codes = to_numpy(tensor.indices)
            starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
            ends = [*starts[1:].tolist(), len(codes)]
            names = tensor.dictionary.take(from_numpy(codes[starts])).to_pylist()
            ranges = dict(zip(names, zip(starts.tolist(), ends, strict=True), strict=True))
            if len(ranges) != len(names):
                raise IndexReaderException(f"{self.key}: rows are not sorted by tensor")
            self._row_ranges[group] = ranges
        return self._row_ranges[group]

    def _columns(self, group: int, names: Iterable[str], keep: bool = True) -> dict[str, Any]:
        """Return decoded columns of a row group; `keep` puts them into the cache."""
        rows = self.metadata.row_group(group).num_rows
        found, missing = {}, []
        for name in names:
            column = self._cache.get((self.key, group, name))
            if column is None and not self._present(group, name):
                column = pa.nulls(rows, SCHEMA.field(name).type)
            if column is None:
                missing.append(name)
            else:
                found[name] = column
        if not missing:
            return found
        if rows <= _SMALL:
            missing = [name for name in SCHEMA.names if self._present(group, name)]
            keep = True
        self._verify(group, missing)
        try:
            # On this thread: one of Arrow's pool that releases memory of Python while the
            # interpreter ends aborts the process.
            table = self._file.read_row_group(group, columns=missing, use_threads=False)
            for name in {*TEXT_COLUMNS, "shape"} & set(missing):
                # Finds invalid UTF-8, and indices outside of the dictionary.
                table[name].validate(full=True)
        except PARQUET_ERRORS as error:
            raise IndexReaderException(f"{self.key}: {error}") from error
        for name in missing:
            found[name] = one_array(table[name])
            try:
                check_column(name, found[name])
            except IndexReaderException as error:
                raise IndexReaderException(f"{self.key}: {error}") from error
            if keep:
                self._cache.put((self.key, group, name), found[name])
        return found

    def _verify(self, group: int, names: Iterable[str], along: bool = True) -> None:
        # Columns without a value are a few bytes that are never read; they are verified here, so
        # that every byte of the file is.
        empty = [name for name in self._leaf if along and not self._present(group, name)]
        names = list(names)
        base = group * self.metadata.num_columns
        leaves = [base + self._leaf[name] for name in (*names, *empty)]
        unchecked = [leaf for leaf in leaves if leaf not in self._checked]
        self._bytes.fetch([self._ranges[leaf] for leaf in unchecked])
        for leaf in unchecked:
            first, end = self._ranges[leaf]
            if crc32c.crc32c(self._bytes.view(first, end)) != self._checksums[leaf]:
                name = self.metadata.schema.column(leaf % self.metadata.num_columns).path
                raise IndexReaderException(
                    f"{self.key}: column {name} at offset {first} fails its checksum"
                )
            self._checked.add(leaf)
        # Those without a value are not decoded, so their pages need no validation.
        for leaf in leaves[: len(names)]:
            if leaf not in self._validated:
                self._validate_pages(leaf)

    def _validate_pages(self, leaf: int) -> None:
        first, end = self._ranges[leaf]
        try:
            self._footer.check_pages(leaf, self._bytes.view(first, end))
        except IndexReaderException as error:
            raise IndexReaderException(f"{self.key}: offset {first}: {error}") from None
        self._validated.add(leaf)

    def _present(self, group: int, name: str) -> bool:
        # The statistics of shapes count the shape () as a null.
        if name not in self._leaf or name == "shape" or name in REQUIRED:
            return name in self._leaf
        statistics = self._statistics(group, name)
        rows = self.metadata.row_group(group).num_rows
        return statistics is None or statistics.null_count != rows

    def _may_hold(self, group: int, name: str, value: Any) -> bool:
        # Parquet omits the bounds of very long strings.
        bounds = self._bounds(group, name)
        if bounds is None:
            return bool(self.metadata.row_group(group).num_rows)
        return bool(bounds[0] <= value <= bounds[1])

    def _bounds(self, group: int, name: str) -> tuple[Any, Any] | None:
        statistics = self._statistics(group, name)
        if statistics is None or not statistics.has_min_max:
            return None
        try:
            return statistics.min, statistics.max
        except PARQUET_ERRORS as error:
            raise IndexReaderException(f"{self.key}: {error}") from error

    def _statistics(self, group: int, name: str) -> Any:
        # Cached: pyarrow takes microseconds to return statistics, and a series needs them often.
        if (group, name) not in self._known:
            try:
                column = self.metadata.row_group(group).column(self._leaf[name])
                self._known[group, name] = column.statistics
            except PARQUET_ERRORS as error:
                raise IndexReaderException(f"{self.key}: {error}") from error
        return self._known[group, name]
