"""Reader of a run of either format: its index as tables, its raw tensors as views.

It has more than 400 lines because both formats meet here and every query of a run ends here.
"""

from __future__ import annotations

import itertools
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from smdebug.exceptions import DataCorrupted, IndexReaderException
from smdebug.storage.arrow import from_numpy, pa, to_numpy
from smdebug.storage.end_marker import EndMarker
from smdebug.storage.format.collections_file import decode_collections
from smdebug.storage.format.keys import (
    COLLECTIONS_PREFIX,
    END_KEY,
    EVENTS_PREFIX,
    INDEX_PREFIX,
    IndexName,
    parse_collections_worker,
    parse_index_key,
    v1_index_key,
    v1_index_start,
)
from smdebug.storage.raw_tensors import RawReader, RecordLocation, each
from smdebug.storage.run_id import RunIds
from smdebug.storage.segment_summary import Segment, StepArrays
from smdebug.storage.untrusted.limits import NAME_CHARACTERS, STEPS, read_json_text, read_small
from smdebug.storage.v1.index import V1Segment, V1Step, parse_v1_step
from smdebug.storage.v2.index import EMPTY, SCHEMA, newest_rows
from smdebug.storage.v2.index_file import ColumnCache, IndexFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smdebug.reductions import Array
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.storage")

# Compaction may remove files while they are being opened; many workers that end at once do so
# repeatedly.
_TRIES = 50
# An object store lists this many keys per request; more of them are not one snapshot.
_PAGE = 1000

# The columns that sort rows and determine the newest.
_ORDERING = ("worker", "tensor", "step", "seq", "position")

T = TypeVar("T")
R = TypeVar("R")


class RunReader:
    """Reads a run from a store.

    Args:
        store: where the run is.

    Attributes:
        version: grows with every refresh that found something new.
        listing_seconds: how long the last refresh took to list files.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.version = 0
        self.listing_seconds = 0.0
        self._cache = ColumnCache()
        self._gathered = ColumnCache()
        self._raw = RawReader(store)
        self._runs = RunIds(store)
        self._seen: set[str] = set()
        self._files: dict[str, IndexFile] = {}
        self._v1: list[V1Segment] = []
        self._generation = 0
        self._start_over()

    def _start_over(self) -> None:
        """Build the summary of all segments again, because some are gone."""
        self._generation += 1
        self._known_steps = self._known_characters = 0
        self._segments: list[Segment] = []
        self._reach: list[tuple[int, int]] = []
        self._names: dict[str, int] = {}
        self._steps: dict[str, list[StepArrays]] = {}
        self._add([*self._v1, *self._files.values()])

    def _add(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._segments.append(segment)
            self._reach.append(segment.step_range())
            self._steps.setdefault(segment.worker, []).append(segment.steps)
            self._known_steps += len(segment.steps.step)
            for name, bits in segment.names.items():
                if name not in self._names:
                    self._known_characters += len(name)
                self._names[name] = self._names.get(name, 0) | bits
            if self._known_steps > STEPS or self._known_characters > NAME_CHARACTERS:
                raise IndexReaderException(
                    f"{self.store.url}: expected at most {STEPS:,} steps and {NAME_CHARACTERS:,} "
                    "characters of names in a run, got more"
                )

    # ---- finding files

    def finished(self) -> bool:
        """Whether the run has an end marker."""
        try:
            self.store.read(END_KEY, 0, 0)
        except KeyError:
            return False
        return True

    def ended_before(self, moment: float) -> bool:
        """Whether the run ended before a time, in seconds since 1970."""
        marker = EndMarker.of(self.store)
        # Format v1 and earlier versions have no time.
        return marker is not None and marker.time is not None and marker.time < moment

    def collections(self) -> dict[str, dict[str, Any]]:
        """Return the parsed collections files by worker.

        Raises:
            IndexReaderException: one of them is damaged, or is not a JSON object.
        """
        found = {}
        for key in self.store.list(COLLECTIONS_PREFIX):
            worker = parse_collections_worker(key)
            if worker is None:
                continue
            file = decode_collections(read_json_text(self.store, key), key)
            self._runs.take(worker, file.run)
            found[worker] = file.content
        return found

    def refresh(
        self, since_step: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> bool:
        """Find new index files, and those that compaction has replaced.

        Args:
            since_step: list only files of this step and later ones; replaced earlier files are
                then not noticed.
            clock: the clock for `listing_seconds`.

        Returns:
            Whether anything changed.

        Raises:
            IndexReaderException: a file is damaged or of another run.
        """
        # Files that one attempt opened are used by the next.
        opened: dict[str, IndexFile] = {}
        for _ in range(_TRIES):
            try:
                return self._refresh_once(since_step, clock, opened)
            except KeyError:
                continue
        raise IndexReaderException(f"{self.store.url}: index files vanish while they are read")

    def _refresh_once(
        self, since_step: int | None, clock: Callable[[], float], opened: dict[str, IndexFile]
    ) -> bool:
        began = clock()
        after = "" if since_step is None else v1_index_start(since_step)
        keys = set(self.store.list(INDEX_PREFIX, after))
        gone = {key for key in self._files if key > after} - keys
        if gone or (self.store.remote and len(keys) >= _PAGE):
            # Old files are deleted after their replacement exists, so a new listing has it. One of
            # several requests may miss both, and a replacement may sort before `after`.
            keys = set(self.store.list(INDEX_PREFIX))
            gone = set(self._files) - keys
        self.listing_seconds = clock() - began
        new = self._open_all(sorted(keys - self._seen), opened)
        for key in gone:
            del self._files[key]
            self._seen.discard(key)
        if gone:
            self._start_over()
        else:
            self._add(new)
        self.version += bool(new or gone)
        return bool(new or gone)

    def _open_all(self, keys: list[str], before: dict[str, IndexFile]) -> list[Segment]:
        named = [(key, parse_index_key(key)) for key in keys]
        for key, name in named:
            if name is None:
                logger.warning(
                    "Ignoring %s/%s, which is not an index file of a run", self.store.url, key
                )
        known = [(key, name) for key, name in named if name is not None]
        v1 = self._open_v1([item for item in known if item[1].seq is None])
        modern = [item for item in known if item[1].seq is not None]
        opened = self._each(lambda item: self._open_file(*item, before), modern)
        # Assigned when everything is open: a refresh that fails changes nothing.
        self._v1 += v1
        self._files.update(zip((key for key, _ in modern), opened, strict=True))
        self._seen.update(keys)
        return [*v1, *opened]

    def _open_file(self, key: str, name: IndexName, before: dict[str, IndexFile]) -> IndexFile:
        if key not in before:
            file = IndexFile(self.store, key, name, self._cache)
            file.check_name(name)
            self._runs.check(key, name.worker, file.run)
            # Read now, so that a file that vanishes is noticed while its replacement is searched.
            _ = file.steps
            before[key] = file
        return before[key]

    def _open_v1(self, items: list[tuple[str, IndexName]]) -> list[V1Segment]:
        def parse(item: tuple[str, IndexName]) -> V1Step:
            key, name = item
            if name.attempt:
                key = v1_index_key(name.step, name.worker)
            step = parse_v1_step(read_small(self.store, key), key, name)
            self._runs.check(key, name.worker, step.run)
            return step

        by_worker: dict[str, list[V1Step]] = {}
        for (_, name), step in zip(items, self._each(parse, items), strict=True):
            by_worker.setdefault(name.worker, []).append(step)
        return [V1Segment(worker, steps, self._read_scalars) for worker, steps in by_worker.items()]

    # ---- the index

    @property
    def segments(self) -> list[Segment]:
        return self._segments

    def names(self) -> dict[str, int]:
        """Return every tensor with the modes it was saved in, as bits."""
        return self._names

    def names_within(self, begin: int, end: int) -> dict[str, int]:
        """Return the tensors of the steps `begin <= step < end`, with their modes as bits."""

        def read() -> dict[str, int]:
            names: dict[str, int] = {}
            for segment in self._holding(begin, end - 1):
                for name, bits in segment.names_within(begin, end).items():
                    names[name] = names.get(name, 0) | bits
            return names

        return self._retry_on_compaction(read)

    def names_at(self, step: int) -> set[str]:
        """Return the tensors saved at a global step."""
        return set(self.names_within(step, step + 1))

    def steps(self) -> dict[str, StepArrays]:
        """Return the steps of every worker."""
        for worker, chunks in self._steps.items():
            # Concatenated once, not again with every step of a long run.
            self._steps[worker] = [StepArrays.concatenate(chunks)]
        return {worker: chunks[0] for worker, chunks in self._steps.items()}

    def _holding(self, low: int, high: int) -> list[Segment]:
        """Return the segments that may have steps from `low` to `high`."""
        reach = np.array(self._reach, np.int64).reshape(-1, 2)
        hits = np.flatnonzero((reach[:, 0] <= high) & (reach[:, 1] >= low))
        return [self._segments[index] for index in hits.tolist()]

    def original_name(self, tensor: str) -> str:
        """Return the name of a tensor in the framework's graph."""
        found = (each.originals[tensor] for each in self._v1 if tensor in each.originals)
        return next(found, tensor)

    def rows(self, tensor: str, columns: Sequence[str], steps: set[int] | None = None) -> pa.Table:
        """Return the newest rows of one tensor, by worker and step.

        With `steps`, rows of other steps may be missing.
        """
        needed = list(dict.fromkeys([*columns, *_ORDERING]))
        if steps is None:
            found = self._retry_on_compaction(lambda: self._gather(tensor, needed))
        else:
            low, high = min(steps, default=0), max(steps, default=-1)
            found = self._retry_on_compaction(
                lambda: _rows_of(self._holding(low, high), tensor, needed, steps)
            )
        return found.select(list(columns))

    def _gather(self, tensor: str, columns: list[str]) -> pa.Table:
        """Return all rows of a tensor; cached, so that next time only new segments are read."""
        key = (tensor, tuple(columns))
        known = self._gathered.get(key)
        if known is None or known.generation != self._generation:
            known = _Gathered(EMPTY.select(columns), 0, self._generation)
        if known.segments < len(self._segments):
            table = _rows_of(self._segments[known.segments :], tensor, columns)
            if known.table.num_rows:
                table = newest_rows(pa.concat_tables([known.table, table])).combine_chunks()
            known = _Gathered(table, len(self._segments), self._generation)
            self._gathered.put(key, known)
        return known.table

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the whole index; without `columns`, key columns and those with values."""
        columns = self.present_columns() if columns is None else columns
        needed = list(dict.fromkeys([*columns, *_ORDERING]))

        def read() -> pa.Table:
            empty = EMPTY.select(needed)
            return pa.concat_tables([empty, *(s.table(needed) for s in self._segments)])

        return newest_rows(self._retry_on_compaction(read)).select(list(columns))

    def present_columns(self) -> list[str]:
        """Return the key columns and those with values."""
        present = {"step", "mode", "mode_step", "worker", "tensor"}
        present = present.union(*(segment.present_columns() for segment in self._segments))
        return [name for name in SCHEMA.names if name in present]

    def table_within(self, begin: int, end: int, columns: Sequence[str]) -> pa.Table:
        """Return the rows of the steps `begin <= step < end`, by worker, tensor and step."""
        needed = list(dict.fromkeys([*columns, *_ORDERING]))

        def read() -> pa.Table:
            chunks = [EMPTY.select(needed)]
            for segment in self._holding(begin, end - 1):
                if isinstance(segment, V1Segment):
                    segment = segment.part(begin, end)
                table = segment.table(needed)
                steps = to_numpy(table["step"])
                if len(steps) and (steps.min() < begin or steps.max() >= end):
                    table = table.filter(from_numpy((steps >= begin) & (steps < end)))
                chunks.append(table)
            return pa.concat_tables(chunks)

        return newest_rows(self._retry_on_compaction(read)).select(list(columns))

    def evict_until(self, step: int) -> None:
        """Close index files of format v2 that have nothing after a step.

        Their steps and names stay, their rows are no longer found: for callers that follow a
        long job and have already read them.
        """
        kept = [segment.step_range()[1] > step for segment in self._segments]
        if all(kept):
            return
        for key, file in list(self._files.items()):
            if file.step_range()[1] <= step:
                del self._files[key]
        held = {id(file) for file in self._files.values()} | {id(each) for each in self._v1}
        pairs = zip(self._segments, self._reach, strict=True)
        left = [pair for pair in pairs if id(pair[0]) in held]
        self._segments, self._reach = [pair[0] for pair in left], [pair[1] for pair in left]
        # Cached rows count segments by number.
        self._generation += 1
        self._cache.clear()
        self._gathered.clear()

    def check_all(self) -> None:
        """Verify every byte of the v2 index files."""
        for file in self._files.values():
            file.check_all()

    def parquet_files(self) -> list[str] | None:
        """The keys of the index files when they alone, read as they are, make the index.

        None when rows of one step lie in several files, or in files of format v1. Every byte of
        the files has been verified when this returns.
        """
        if self._v1 or not self._files:
            return None
        reach: dict[str, list[tuple[int, int]]] = {}
        for file in self._files.values():
            reach.setdefault(file.worker, []).append(file.step_range())
        for ranges in reach.values():
            ranges.sort()
            if any(second[0] <= first[1] for first, second in itertools.pairwise(ranges)):
                return None
        self.check_all()
        return sorted(self._files)

    def _retry_on_compaction(self, read: Callable[[], R]) -> R:
        for _ in range(_TRIES):
            try:
                return read()
            except KeyError:
                # A file was compacted since it was opened, which may happen again. If the files
                # are the same, the error has another cause.
                if not self.refresh():
                    raise
        return read()

    # ---- raw tensors

    def has_later_events(self, event_file: str) -> bool:
        """Whether the worker of an event file has another one of a later step."""
        worker = event_file.rpartition("/")[2].partition("_")[2]
        later = self.store.list(EVENTS_PREFIX, event_file)
        return any(key.rpartition("/")[2].partition("_")[2] == worker for key in later)

    def read_values(self, locations: Sequence[RecordLocation]) -> list[Array]:
        """Read records; see `RawReader.read_values`."""
        return self._raw.read_values(locations)

    def read_times(self, locations: Sequence[RecordLocation]) -> list[float]:
        """Return when records were made; see `RawReader.read_times`."""
        return self._expected(lambda: self._raw.read_times(locations))

    def v1_time(self, worker: str, step: int) -> float | None:
        """Return when the first record of a v1 step was made, which its index does not have."""
        found = [each.first_location(step) for each in self._v1 if each.worker == worker]
        locations = [location for location in found if location is not None]
        if not locations:
            return None
        if locations[-1].checksum is None:
            # Without a checksum there is nothing to verify in the rest of a large record.
            return self._expected(lambda: self._raw.file_time(locations[-1].event_file))
        return self.read_times([locations[-1]])[0]

    def _read_scalars(self, locations: list[RecordLocation]) -> list[float]:
        values = self._expected(lambda: self.read_values(locations))
        return [_number(value, location) for value, location in zip(values, locations, strict=True)]

    def _expected(self, read: Callable[[], R]) -> R:
        """Read event files; those of format v1 are never replaced."""
        try:
            return read()
        except KeyError as error:
            raise DataCorrupted("the event file is not there", key=str(error.args[0])) from error

    def _each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return each(self.store, work, items)


def _number(value: Array, location: RecordLocation) -> float:
    if value.size != 1 or value.dtype.kind in "SUOc":
        raise DataCorrupted(
            f"expected one number, got shape {value.shape} of {value.dtype}",
            key=location.event_file, offset=location.offset, tensor=location.tensor,
        )  # fmt: skip
    return float(value.reshape(-1)[0])


@dataclass(frozen=True)
class _Gathered:
    """The rows of a tensor in the first segments of a generation."""

    table: pa.Table
    segments: int
    generation: int

    @property
    def nbytes(self) -> int:
        # An estimate: the exact size of an Arrow table takes longer than reading it.
        return 8 * int(self.table.num_rows * self.table.num_columns)


def _rows_of(
    segments: Sequence[Segment], tensor: str, columns: list[str], steps: set[int] | None = None
) -> pa.Table:
    chunks = [segment.rows(tensor, columns, steps) for segment in segments]
    found = [chunk for chunk in chunks if chunk is not None]
    if not found:
        return EMPTY.select(columns)
    # Rows of one segment are sorted and unique.
    return found[0] if len(found) == 1 else newest_rows(pa.concat_tables(found))
