"""Rows of index files, and the records they name: is each what the other says?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.exceptions import DataCorrupted, IndexReaderException, SMDebugError, StoreError
from smdebug.mode_keys import MODE_PLUGIN_NAME, MODE_STEP_PLUGIN_NAME, ModeKeys
from smdebug.storage.format.dtypes import dtype_name
from smdebug.storage.format.keys import IndexName, parse_event_seq
from smdebug.storage.raw_tensors import RawReader, RecordLocation, places_of
from smdebug.storage.run_id import RunNames
from smdebug.storage.segment_summary import one_array
from smdebug.storage.v1.index import V1Step, checked_json, parse_classic
from smdebug.storage.v2.index_file import ColumnCache, IndexFile
from smdebug.storage.v2.row_checks import CHECKED_COLUMNS, wrong_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.storage.arrow import pa
    from smdebug.storage.check.report import CheckReport
    from smdebug.storage.format.events import Event
    from smdebug.storage.stores.base import Store
    from smdebug.storage.v2.index import Ints

# So many rows, and so many bytes of records, are looked at together.
_MOST_ROWS, _MOST_BYTES = 4096, 64 << 20
# No file is as long; what a damaged number asks for is not.
_FURTHEST = 1 << 50
_MODE_NAMES: dict[str | None, str] = {str(mode.value): mode.name for mode in ModeKeys}
_CLASSIC_KEYS = {"meta", "tensor_payload", "shape_payload", "origin", "crc32c"}
_NO_CHECKSUM = (
    "index files without checksums, as smdebug 1.0 writes them; only framing, names and steps of "
    "their records can be checked"
)


class ExpectedRecord(NamedTuple):
    """What an index says of a record: where it is, and what it must hold."""

    row: int
    place: RecordLocation
    mode: ModeKeys
    mode_step: int
    dtype: str | None
    shape: tuple[int, ...] | None


class RowCheck:
    """Checks index files and what they name.

    Args:
        store: where the run is kept.
        report: where to say what was found.

    Attributes:
        workers: who has rows.
    """

    def __init__(self, store: Store, report: CheckReport) -> None:
        self.workers: set[str] = set()
        self._store = store
        self._report = report
        self._raw = RawReader(store)
        self._runs = RunNames(store)
        # For every event file, where the records begin and end that rows name.
        self._named: dict[str, list[Ints]] = {}

    # ---- format v2

    def check_file(self, key: str, name: IndexName) -> None:
        """Checks an index file of format v2, its rows, and their records.

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
            report.add(key, _told(error, key), worker=name.worker)
            return
        self.workers.add(name.worker)
        self._check_run(key, name, file.run)
        report.bytes += file.nbytes
        first_row, whole = 0, True
        for group in range(file.metadata.num_row_groups):
            damaged = file.damaged_columns(group)
            rows = file.metadata.row_group(group).num_rows
            for column, offset in damaged:
                what = f"column {column} fails its checksum; {rows} rows are not looked at"
                report.add(key, what, offset=offset, worker=name.worker)
            whole = whole and not damaged
            if not damaged:
                self._check_group(key, name, file, group, first_row)
            first_row += rows
        if whole and first_row and file.step_range()[0] != name.step:
            what = f"the file begins with step {file.step_range()[0]}, its name says {name.step}"
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
            self._report.add(key, _told(error, key), row=first, worker=name.worker)
            return
        self._report.rows += table.num_rows
        for row, what in found:
            known = table.slice(row, 1).to_pylist()[0]
            tensor, step = known["tensor"], known["step"]
            self._report.add(
                key, what, row=first + row, tensor=tensor, step=step, worker=known["worker"]
            )
        has_record = table["offset"].is_valid().to_numpy()
        # Rows that contradict themselves lead nowhere.
        has_record[[row for row, _ in found]] = False
        rows = np.flatnonzero(has_record)
        files = one_array(table["event_file"]).indices.to_numpy(zero_copy_only=False)
        offsets = table["offset"].to_numpy()
        order = rows[np.lexsort((offsets[rows], files[rows]))]
        if len(order):
            self._check_sequence(key, first, table.take(order), order)
        lengths = table["length"].to_numpy()[order]
        for piece in _pieces(lengths):
            chosen = order[piece]
            self._check_records(key, _said(table.take(chosen), first + chosen))

    def _check_sequence(self, key: str, first: int, table: pa.Table, order: Ints) -> None:
        """Event files carry the worker and the number of the segment in their names."""
        files = one_array(table["event_file"])
        pairs = np.stack([files.indices.to_numpy(), table["seq"].to_numpy()], axis=1)
        _, places = np.unique(pairs, axis=0, return_index=True)
        for place, row in zip(places, table.take(places).to_pylist(), strict=True):
            if parse_event_seq(row["event_file"], row["worker"]) == row["seq"]:
                continue
            at = first + int(order[place])
            what = (
                f"a row of worker {row['worker']} and segment {row['seq']} names the event file "
                f"{row['event_file']}"
            )
            self._report.add(key, what, row=at, tensor=row["tensor"], step=row["step"])

    # ---- format v1

    def check_classic(self, key: str, name: IndexName, data: bytes) -> None:
        """Checks an index file of format v1 and the records it names."""
        report = self._report
        report.bytes += len(data)
        try:
            content = checked_json(data, key)
            step = parse_classic(data, key, name)
        except SMDebugError as error:
            report.add(key, _told(error, key), step=name.step, worker=name.worker)
            return
        strange = sorted(set(content) - _CLASSIC_KEYS)
        if strange:
            # The checksum's own name may be what was damaged.
            report.add(key, f"unknown key {strange[0]!r}", step=name.step, worker=name.worker)
        if "crc32c" not in content:
            report.remark(_NO_CHECKSUM, key)
        self.workers.add(name.worker)
        report.rows += len({*step.names, *step.shapes})
        self._check_run(key, name, step.run)
        said = list(_said_classic(step))
        for piece in _pieces(np.array([each.place.length for each in said], np.int64)):
            self._check_records(key, [said[number] for number in piece])

    def _check_run(self, key: str, name: IndexName, run: str | None) -> None:
        try:
            self._runs.check(key, name.worker, run)
        except IndexReaderException as error:
            self._report.add(key, _told(error, key), worker=name.worker)

    # ---- records

    def _check_records(self, key: str, said: list[ExpectedRecord]) -> None:
        within = []
        for each in said:
            place = each.place
            if place.offset < 0 or place.length < 0 or place.offset + place.length > _FURTHEST:
                what = f"no record lies at offset {place.offset} with {place.length} bytes"
                self._report.add(key, what, row=each.row, tensor=place.tensor, step=place.step)
            else:
                within.append(each)
        events = self._raw.read_events([each.place for each in within])
        missing: dict[str, list[ExpectedRecord]] = {}
        named: dict[str, list[tuple[int, int]]] = {}
        for each, event in zip(within, events, strict=True):
            if isinstance(event, KeyError):
                missing.setdefault(each.place.event_file, []).append(each)
                continue
            ends = (each.place.offset, each.place.offset + each.place.length)
            named.setdefault(each.place.event_file, []).append(ends)
            self._check_record(key, each, event)
        for event_file, stretches in named.items():
            self._named.setdefault(event_file, []).append(np.array(stretches, np.int64))
        for event_file, rows in missing.items():
            self._report_missing(key, event_file, rows)

    def _check_record(self, key: str, said: ExpectedRecord, event: Event | Exception) -> None:
        place, report = said.place, self._report
        if isinstance(event, Exception):
            what = event.message if isinstance(event, DataCorrupted) else str(event)
            report.add(
                place.event_file, what, offset=place.offset, tensor=place.tensor, step=place.step
            )
            return
        report.records += 1
        report.bytes += place.length
        wrong = _contradiction(said, event)
        if wrong is not None:
            name, held, expected = wrong
            report.add(
                place.event_file,
                f"the record holds {name} {held}, row {said.row} of {key} says {expected}",
                offset=place.offset,
                tensor=place.tensor,
                step=place.step,
            )

    def _report_missing(self, key: str, event_file: str, rows: list[ExpectedRecord]) -> None:
        try:
            self._store.read(key, 0, 1)
        except KeyError:
            # The index file is gone as well: somebody has joined it with others and cleaned up.
            return
        place = rows[0].place
        what = f"the file is not there; {len(rows)} rows of {key} name it"
        self._report.add(event_file, what, tensor=place.tensor, step=place.step)

    # ---- which records are named

    def names(self, event_file: str) -> bool:
        """Whether any row names a record of an event file."""
        return event_file in self._named

    def gaps(self, event_file: str) -> list[tuple[int, int | None]]:
        """The stretches of an event file that no row names; the last one reaches to its end."""
        pieces = self._named.get(event_file)
        if not pieces:
            return [(0, None)]
        named = np.concatenate(pieces)
        named = named[np.argsort(named[:, 0], kind="stable")]
        reach = np.maximum.accumulate(named[:, 1])
        before = np.concatenate([[0], reach[:-1]])
        open_at = np.flatnonzero(named[:, 0] > before)
        gaps = [(int(before[at]), int(named[at, 0])) for at in open_at]
        return [*gaps, (int(reach[-1]), None)]


def _said(table: pa.Table, rows: Ints) -> list[ExpectedRecord]:
    columns = [table[name].to_pylist() for name in ("mode", "mode_step", "dtype", "shape")]
    places = places_of(table)
    return [
        ExpectedRecord(
            row, place, ModeKeys[mode], mode_step, dtype, None if shape is None else tuple(shape)
        )
        for row, place, mode, mode_step, dtype, shape in zip(
            rows.tolist(), places, *columns, strict=True
        )
        if place is not None
    ]


def _said_classic(step: V1Step) -> Iterator[ExpectedRecord]:
    for row, (name, place) in enumerate(zip(step.names, step.places, strict=True)):
        shape, dtype = step.shapes.get(name, (None, None))
        where = RecordLocation(str(step.event_file), *place, name, step.step, True)
        yield ExpectedRecord(row, where, ModeKeys(step.mode), step.mode_step, dtype, shape)


def _pieces(lengths: Ints) -> Iterator[Ints]:
    """Numbers of rows, as many at a time as may be looked at together."""
    begin, size = 0, 0
    for row, length in enumerate(lengths.tolist()):
        if row > begin and (size + length > _MOST_BYTES or row - begin >= _MOST_ROWS):
            yield np.arange(begin, row)
            begin, size = row, 0
        size += length
    if len(lengths):
        yield np.arange(begin, len(lengths))


def _contradiction(said: ExpectedRecord, event: Event) -> tuple[str, Any, Any] | None:
    """Where a record and its row disagree: about what, what it holds, what was expected."""
    value = event.values[0]
    assert value.tensor is not None
    told = value.metadata
    mode, mode_step = told.get(MODE_PLUGIN_NAME), told.get(MODE_STEP_PLUGIN_NAME)
    pairs: list[tuple[str, Any, Any]] = []
    if said.place.checksum is not None:
        # An index file of smdebug 1.0 names one mode, whatever its records are of.
        pairs.append(("mode", _MODE_NAMES.get(mode, mode), said.mode.name))
        pairs.append(("mode step", mode_step, str(said.mode_step)))
    if said.dtype is not None:
        held = dtype_name(value.tensor.dtype)
        # Bytes that are text look like text.
        text = {held, said.dtype} <= {"str", "bytes"}
        pairs.append(("dtype", said.dtype if text else held, said.dtype))
    if said.shape is not None:
        pairs.append(("shape", value.tensor.shape, said.shape))
    return next((each for each in pairs if each[1] is not None and each[1] != each[2]), None)


def _told(error: Exception, key: str) -> str:
    """What an error says, without the file's name, which stands beside it."""
    return str(error).removeprefix(f"{key}: ")
