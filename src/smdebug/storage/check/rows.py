"""Checks of index files: their rows, and the records that the rows name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.exceptions import DataCorrupted, IndexReaderException, SMDebugError, StoreError
from smdebug.mode_keys import MODE_PLUGIN_NAME, MODE_STEP_PLUGIN_NAME, ModeKeys
from smdebug.storage.arrow import from_numpy, to_numpy
from smdebug.storage.format.dtypes import dtype_name
from smdebug.storage.format.keys import IndexName, parse_event_seq
from smdebug.storage.raw_tensors import RawReader, RecordLocation, record_locations
from smdebug.storage.run_id import RunIds
from smdebug.storage.segment_summary import one_array
from smdebug.storage.v1.index import V1Step, checked_json, parse_v1_step
from smdebug.storage.v2.index_file import ColumnCache, IndexFile
from smdebug.storage.v2.row_checks import CHECKED_COLUMNS, wrong_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.storage.arrow import pa
    from smdebug.storage.check.report import CheckReport
    from smdebug.storage.format.events import Event
    from smdebug.storage.stores.base import Store
    from smdebug.storage.v2.index import Ints

# How many rows, and how many bytes of records, are checked at once.
_MAX_ROWS, _MAX_BYTES = 4096, 64 << 20
# No file is longer: a larger offset is a damaged number.
_MAX_OFFSET = 1 << 50
_MODE_NAMES: dict[str | None, str] = {str(mode.value): mode.name for mode in ModeKeys}
_V1_KEYS = {"meta", "tensor_payload", "shape_payload", "origin", "crc32c"}
_NO_CHECKSUM = (
    "index files without checksums, as smdebug 1.0 writes them; only framing, names and steps of "
    "their records can be checked"
)


class ExpectedRecord(NamedTuple):
    """A record as the index describes it: where it is, and what it must contain."""

    row: int
    location: RecordLocation
    mode: ModeKeys
    mode_step: int
    dtype: str | None
    shape: tuple[int, ...] | None


class RowCheck:
    """Checks index files and the records they name.

    Args:
        store: where the run is.
        report: receives the problems.

    Attributes:
        workers: the workers that have rows.
    """

    def __init__(self, store: Store, report: CheckReport) -> None:
        self.workers: set[str] = set()
        self._store = store
        self._report = report
        self._raw = RawReader(store)
        self._runs = RunIds(store)
        # For every event file, the ranges of the records that rows name.
        self._named: dict[str, list[Ints]] = {}

    # ---- format v2

    def check_file(self, key: str, name: IndexName) -> None:
        """Check an index file of format v2, its rows, and their records.

        Raises:
            KeyError: the file is gone.
        """
        report = self._report
        try:
            file = IndexFile(self._store, key, name, ColumnCache(0))
            file.check_magic()
        except StoreError:
            raise
        except (SMDebugError, OSError) as error:
            report.add(key, _message(error, key), worker=name.worker)
            return
        self.workers.add(name.worker)
        self._check_run(key, name, file.run)
        report.bytes += file.nbytes
        first_row, whole = 0, True
        for group in range(file.metadata.num_row_groups):
            damaged = file.damaged_columns(group)
            rows = file.metadata.row_group(group).num_rows
            for column, offset in damaged:
                what = f"column {column} fails its checksum; {rows} rows are not checked"
                report.add(key, what, offset=offset, worker=name.worker)
            whole = whole and not damaged
            if not damaged:
                self._check_group(key, name, file, group, first_row)
            first_row += rows
        if whole and first_row and file.step_range()[0] != name.step:
            what = f"the file starts with step {file.step_range()[0]}, its name with {name.step}"
            report.add(key, what, worker=name.worker)

    def _check_group(
        self, key: str, name: IndexName, file: IndexFile, group: int, first: int
    ) -> None:
        try:
            table = file.group_table(group, CHECKED_COLUMNS)
            found = wrong_rows(table, name)
        except StoreError:
            raise
        except (SMDebugError, OSError) as error:
            self._report.add(key, _message(error, key), row=first, worker=name.worker)
            return
        self._report.rows += table.num_rows
        for row, what in found:
            known = table.slice(row, 1).to_pylist()[0]
            tensor, step = known["tensor"], known["step"]
            self._report.add(
                key, what, row=first + row, tensor=tensor, step=step, worker=known["worker"]
            )
        has_record = to_numpy(table["offset"].is_valid())
        # Records of contradictory rows are not checked.
        has_record[[row for row, _ in found]] = False
        rows = np.flatnonzero(has_record)
        files = to_numpy(one_array(table["event_file"]).indices)
        offsets = to_numpy(table["offset"])
        order = rows[np.lexsort((offsets[rows], files[rows]))]
        if len(order):
            self._check_sequence(key, first, table.take(from_numpy(order)), order)
        lengths = to_numpy(table["length"])[order]
        for batch in _batches(lengths):
            chosen = order[batch]
            self._check_records(
                key, _expected_records(table.take(from_numpy(chosen)), first + chosen)
            )

    def _check_sequence(self, key: str, first: int, table: pa.Table, order: Ints) -> None:
        """Compare rows with the names of their event files, which have worker and segment."""
        files = one_array(table["event_file"])
        pairs = np.stack([to_numpy(files.indices), to_numpy(table["seq"])], axis=1)
        _, locations = np.unique(pairs, axis=0, return_index=True)
        for location, row in zip(
            locations, table.take(from_numpy(locations)).to_pylist(), strict=True
        ):
            if parse_event_seq(row["event_file"], row["worker"]) == row["seq"]:
                continue
            at = first + int(order[location])
            what = (
                f"a row of worker {row['worker']} and segment {row['seq']} names the event file "
                f"{row['event_file']}"
            )
            self._report.add(key, what, row=at, tensor=row["tensor"], step=row["step"])

    # ---- format v1

    def check_v1(self, key: str, name: IndexName, data: bytes) -> None:
        """Check an index file of format v1 and the records it names."""
        report = self._report
        report.bytes += len(data)
        try:
            content = checked_json(data, key)
            step = parse_v1_step(data, key, name)
        except SMDebugError as error:
            report.add(key, _message(error, key), step=name.step, worker=name.worker)
            return
        strange = sorted(set(content) - _V1_KEYS)
        if strange:
            # The name of the checksum itself may be damaged.
            report.add(key, f"unknown key {strange[0]!r}", step=name.step, worker=name.worker)
        if "crc32c" not in content:
            report.remark(_NO_CHECKSUM, key)
        self.workers.add(name.worker)
        report.rows += len({*step.names, *step.shapes})
        self._check_run(key, name, step.run)
        expected = list(_expected_v1_records(step))
        for batch in _batches(np.array([each.location.length for each in expected], np.int64)):
            self._check_records(key, [expected[number] for number in batch])

    def _check_run(self, key: str, name: IndexName, run: str | None) -> None:
        try:
            self._runs.check(key, name.worker, run)
        except IndexReaderException as error:
            self._report.add(key, _message(error, key), worker=name.worker)

    # ---- records

    def _check_records(self, key: str, expected: list[ExpectedRecord]) -> None:
        within = []
        for each in expected:
            location = each.location
            start, length = location.offset, location.length
            if start < 0 or length < 0 or start + length > _MAX_OFFSET:
                what = f"there is no record of {length} bytes at offset {start}"
                self._report.add(
                    key, what, row=each.row, tensor=location.tensor, step=location.step
                )
            else:
                within.append(each)
        events = self._raw.read_events([each.location for each in within])
        missing: dict[str, list[ExpectedRecord]] = {}
        named: dict[str, list[tuple[int, int]]] = {}
        for each, event in zip(within, events, strict=True):
            if isinstance(event, KeyError):
                missing.setdefault(each.location.event_file, []).append(each)
                continue
            ends = (each.location.offset, each.location.offset + each.location.length)
            named.setdefault(each.location.event_file, []).append(ends)
            self._check_record(key, each, event)
        for event_file, ranges in named.items():
            self._named.setdefault(event_file, []).append(np.array(ranges, np.int64))
        for event_file, rows in missing.items():
            self._report_missing(key, event_file, rows)

    def _check_record(self, key: str, expected: ExpectedRecord, event: Event | Exception) -> None:
        location, report = expected.location, self._report
        if isinstance(event, Exception):
            what = event.message if isinstance(event, DataCorrupted) else str(event)
            report.add(
                location.event_file,
                what,
                offset=location.offset,
                tensor=location.tensor,
                step=location.step,
            )
            return
        report.records += 1
        report.bytes += location.length
        wrong = _contradiction(expected, event)
        if wrong is not None:
            name, actual, in_index = wrong
            report.add(
                location.event_file,
                f"the record has {name} {actual}, row {expected.row} of {key} has {in_index}",
                offset=location.offset,
                tensor=location.tensor,
                step=location.step,
            )

    def _report_missing(self, key: str, event_file: str, rows: list[ExpectedRecord]) -> None:
        try:
            self._store.read(key, 0, 1)
        except KeyError:
            # The index file is gone as well: it was compacted, and the orphans were removed.
            return
        location = rows[0].location
        what = f"the file is missing; {len(rows)} rows of {key} name it"
        self._report.add(event_file, what, tensor=location.tensor, step=location.step)

    # ---- which records are named

    def names(self, event_file: str) -> bool:
        """Whether any row names a record of an event file."""
        return event_file in self._named

    def gaps(self, event_file: str) -> list[tuple[int, int | None]]:
        """Return the ranges of an event file that no row names; the last one ends with the file."""
        chunks = self._named.get(event_file)
        if not chunks:
            return [(0, None)]
        named = np.concatenate(chunks)
        named = named[np.argsort(named[:, 0], kind="stable")]
        reach = np.maximum.accumulate(named[:, 1])
        before = np.concatenate([[0], reach[:-1]])
        open_at = np.flatnonzero(named[:, 0] > before)
        gaps = [(int(before[at]), int(named[at, 0])) for at in open_at]
        return [*gaps, (int(reach[-1]), None)]


def _expected_records(table: pa.Table, rows: Ints) -> list[ExpectedRecord]:
    columns = [table[name].to_pylist() for name in ("mode", "mode_step", "dtype", "shape")]
    locations = record_locations(table)
    return [
        ExpectedRecord(
            row, location, ModeKeys[mode], mode_step, dtype, None if shape is None else tuple(shape)
        )
        for row, location, mode, mode_step, dtype, shape in zip(
            rows.tolist(), locations, *columns, strict=True
        )
        if location is not None
    ]


def _expected_v1_records(step: V1Step) -> Iterator[ExpectedRecord]:
    for row, (name, location) in enumerate(zip(step.names, step.locations, strict=True)):
        shape, dtype = step.shapes.get(name, (None, None))
        where = RecordLocation(str(step.event_file), *location, name, step.step, True)
        yield ExpectedRecord(row, where, ModeKeys(step.mode), step.mode_step, dtype, shape)


def _batches(lengths: Ints) -> Iterator[Ints]:
    """Yield indices of rows in batches of limited size."""
    begin, size = 0, 0
    for row, length in enumerate(lengths.tolist()):
        if row > begin and (size + length > _MAX_BYTES or row - begin >= _MAX_ROWS):
            yield np.arange(begin, row)
            begin, size = row, 0
        size += length
    if len(lengths):
        yield np.arange(begin, len(lengths))


def _contradiction(expected: ExpectedRecord, event: Event) -> tuple[str, Any, Any] | None:
    """Return how a record differs from its row: the field, its value, that of the row."""
    value = event.values[0]
    assert value.tensor is not None
    metadata = value.metadata
    mode, mode_step = metadata.get(MODE_PLUGIN_NAME), metadata.get(MODE_STEP_PLUGIN_NAME)
    pairs: list[tuple[str, Any, Any]] = []
    if expected.location.checksum is not None:
        # An index file of smdebug 1.0 has one mode, also for records of several.
        pairs.append(("mode", _MODE_NAMES.get(mode, mode), expected.mode.name))
        pairs.append(("mode step", mode_step, str(expected.mode_step)))
    if expected.dtype is not None:
        held = dtype_name(value.tensor.dtype)
        # A record does not distinguish bytes from strings.
        text = {held, expected.dtype} <= {"str", "bytes"}
        pairs.append(("dtype", expected.dtype if text else held, expected.dtype))
    if expected.shape is not None:
        pairs.append(("shape", value.tensor.shape, expected.shape))
    return next((each for each in pairs if each[1] is not None and each[1] != each[2]), None)


def _message(error: Exception, key: str) -> str:
    """Return the message of an error without the key, which is reported separately."""
    return str(error).removeprefix(f"{key}: ")
