"""Reader of raw tensors: records that the index points to, each verified before it is decoded."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from smdebug.exceptions import DataCorrupted, SMDebugError, StoreError
from smdebug.storage.format.dtypes import dtype_of
from smdebug.storage.format.events import decode_event
from smdebug.storage.format.records import HEADER_SIZE, open_record, payload_length
from smdebug.storage.stores.base import Store, check_key
from smdebug.storage.stores.local import populate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smdebug.reductions import Array
    from smdebug.storage.arrow import pa
    from smdebug.storage.format.events import Event

# Records of one remote file with at most this many bytes between them are fetched together.
_GAP = 1 << 20
_MAX_OPEN_FILES = 64
# The key and the double at the start of an event.
_TIME_BYTES = 9
# Verifying a record of this size again takes longer than remembering it.
_LARGE = 1 << 20
_VERIFIERS = min(os.cpu_count() or 1, 8)

T = TypeVar("T")
R = TypeVar("R")


class RecordLocation(NamedTuple):
    """Where a record is and what it must contain."""

    event_file: str
    offset: int
    length: int
    checksum: int | None
    tensor: str
    step: int
    # Of format v1: its footer may be the constant.
    v1: bool = False
    digest: int | None = None


class RawReader:
    """Reads raw tensors of a run.

    Args:
        store: where the run is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # Over the store, not over self: a cycle would keep files mapped until it is collected.
        self._event_file = lru_cache(_MAX_OPEN_FILES)(
            lambda key: _EventFile(store.read(check_key(key)))
        )

    def read_values(self, locations: Sequence[RecordLocation]) -> list[Array]:
        """Read records; each is verified and must be of the expected tensor and step.

        Local values are read-only views on the mapped file.

        Raises:
            DataCorrupted: a record fails a check.
            KeyError: an event file is missing.
        """
        if self._store.remote:
            return self._read_remote(locations, _value)
        files = [self._event_file(location.event_file) for location in locations]
        large = sum(location.length >= _LARGE for location in locations)
        if large < 2:
            return [file.value(location) for file, location in zip(files, locations, strict=True)]
        # Verifying releases the GIL: large records are verified in parallel.
        with ThreadPoolExecutor(min(large, _VERIFIERS), "smdebug-verify") as pool:
            return list(pool.map(_EventFile.value, files, locations))

    def read_times(self, locations: Sequence[RecordLocation]) -> list[float]:
        """Return when records were made, in seconds since 1970; verified as by `read_values`."""
        if self._store.remote:
            return self._read_remote(locations, _time)
        return [self._event_file(location.event_file).time(location) for location in locations]

    def read_events(self, locations: Sequence[RecordLocation]) -> list[Event | Exception]:
        """Read records as `read_values` does, with the error in the place of a record that has one.

        Raises:
            StoreError: an object store does not answer.
        """
        if self._store.remote:
            return self._remote_events(locations)
        files = [_attempt(self._event_file, location.event_file) for location in locations]
        large = sum(location.length >= _LARGE for location in locations)
        if large < 2:
            return list(map(_event_of, files, locations))
        with ThreadPoolExecutor(min(large, _VERIFIERS), "smdebug-verify") as pool:
            return list(pool.map(_event_of, files, locations))

    def _remote_events(self, locations: Sequence[RecordLocation]) -> list[Event | Exception]:
        spans = _spans(locations)
        data = each(
            self._store,
            partial(_attempt, partial(_read_span, self._store)),
            spans,
        )
        events: dict[int, Event | Exception] = {}
        for span, view in zip(spans, data, strict=True):
            for number in span.numbers:
                location = locations[number]
                if isinstance(view, Exception):
                    events[number] = view
                    continue
                start = location.offset - span.start
                record = view[start : start + location.length]
                events[number] = _attempt(partial(_event, location=location), record)
        return [events[number] for number in range(len(locations))]

    def file_time(self, key: str) -> float:
        """Return when the first record of an event file was made, from its first bytes."""
        data = self._store.read(check_key(key), 0, HEADER_SIZE + _TIME_BYTES)
        if len(data) < HEADER_SIZE + _TIME_BYTES:
            raise DataCorrupted("file ends inside a record", key=key, offset=0)
        payload_length(data, key=key, offset=0)
        # An event starts with its time, and a prefix of its fields is an event as well.
        return decode_event(data[HEADER_SIZE:], key=key, offset=0).wall_time

    def _read_remote(
        self, locations: Sequence[RecordLocation], decode: Callable[[memoryview, RecordLocation], R]
    ) -> list[R]:
        spans = _spans(locations)
        data = each(self._store, lambda span: _read_span(self._store, span), spans)
        values: dict[int, R] = {}
        for span, view in zip(spans, data, strict=True):
            for number in span.numbers:
                location = locations[number]
                start = location.offset - span.start
                record = view[start : start + location.length]
                if 2 * location.length < len(view):
                    # A view would keep the whole response in memory.
                    record = memoryview(bytes(record))
                values[number] = decode(record, location)
        return [values[number] for number in range(len(locations))]


class _EventFile:
    """A mapped event file; a large record is verified only when it is first read."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._verified: dict[RecordLocation, Array] = {}

    def value(self, location: RecordLocation) -> Array:
        if location in self._verified:
            return self._verified[location]
        if location.length < _LARGE:
            return _value(self._data[location.offset : location.offset + location.length], location)
        populate(self._data, location.offset, location.length)
        value = _value(self._data[location.offset : location.offset + location.length], location)
        self._verified[location] = value
        return value

    def event(self, location: RecordLocation) -> Event:
        if location.length >= _LARGE:
            populate(self._data, location.offset, location.length)
        return _event(self._data[location.offset : location.offset + location.length], location)

    def time(self, location: RecordLocation) -> float:
        return _time(self._data[location.offset : location.offset + location.length], location)


def _attempt(work: Callable[[T], R], item: T) -> R | Exception:
    """Return the result, or the error it failed with; raise if the store does not answer."""
    try:
        return work(item)
    except StoreError:
        raise
    except (KeyError, SMDebugError, OSError) as error:
        return error


def _event_of(file: _EventFile | Exception, location: RecordLocation) -> Event | Exception:
    return file if isinstance(file, Exception) else _attempt(file.event, location)


class _Span:
    """Neighboring records of one file that one request fetches."""

    def __init__(self, key: str, start: int) -> None:
        self.key = key
        self.start = start
        self.end = start
        self.numbers: list[int] = []


def _spans(locations: Sequence[RecordLocation]) -> list[_Span]:
    spans: list[_Span] = []
    order = sorted(
        range(len(locations)), key=lambda n: (locations[n].event_file, locations[n].offset)
    )
    for number in order:
        location = locations[number]
        last = spans[-1] if spans else None
        if last is None or last.key != location.event_file or location.offset > last.end + _GAP:
            last = _Span(location.event_file, location.offset)
            spans.append(last)
        last.end = max(last.end, location.offset + location.length)
        last.numbers.append(number)
    return spans


def _read_span(store: Store, span: _Span) -> memoryview:
    return store.read(check_key(span.key), span.start, span.end - span.start)


def _value(record: memoryview, location: RecordLocation) -> Array:
    tensor = _event(record, location).values[0].tensor
    assert tensor is not None
    return tensor


def _time(record: memoryview, location: RecordLocation) -> float:
    return _event(record, location).wall_time


def _event(record: memoryview, location: RecordLocation) -> Event:
    where: dict[str, Any] = {
        "key": location.event_file,
        "offset": location.offset,
        "tensor": location.tensor,
    }
    if len(record) != location.length:
        raise DataCorrupted("file ends before the record does", **where)
    payload = open_record(
        record,
        expected=location.checksum,
        expected_digest=location.digest,
        v1=location.v1,
        **where,
    )
    event = decode_event(payload, key=location.event_file, offset=location.offset)
    value = event.values[0] if len(event.values) == 1 else None
    if value is None or value.tensor is None:
        raise DataCorrupted("the record has no tensor", **where)
    if value.tag != location.tensor or event.step != location.step:
        raise DataCorrupted(
            f"the record has tensor {value.tag} of step {event.step}, not of step {location.step}",
            **where,
        )
    return event


def record_locations(table: pa.Table, tensor: str | None = None) -> list[RecordLocation | None]:
    """Return where the raw values of rows are; None for rows without a record.

    Args:
        table: the rows.
        tensor: the tensor of all rows; None to take it from the table.
    """
    columns = [table[name].to_pylist() for name in _LOCATION_COLUMNS]
    tensors = table["tensor"].to_pylist() if tensor is None else [tensor] * table.num_rows
    return [
        None
        if offset is None
        else RecordLocation(file, offset, length, checksum, name, step, seq < 0, digest)
        for file, offset, length, checksum, digest, step, seq, name in zip(
            *columns, tensors, strict=True
        )
    ]


_LOCATION_COLUMNS = ("event_file", "offset", "length", "checksum", "digest", "step", "seq")
VALUE_COLUMNS = [*_LOCATION_COLUMNS, "value", "dtype", "shape"]


def as_dtype(value: Array, name: str | None) -> Array:
    """Convert strings to the type in the index: in a record, bytes and strings are the same."""
    if name == "bytes" and value.dtype.kind == "U":
        if not value.size:
            return np.zeros(value.shape, np.bytes_)
        return np.char.encode(value, "utf-8", "surrogatepass")
    return value


_TEXT_KINDS = {"str": np.dtype("U1"), "bytes": np.dtype("S1")}


def value_in_index(value: float | None, dtype: str | None, shape: list[int] | None) -> Array | None:
    """Return the value of a row without a record: a scalar, an empty tensor, or None."""
    if shape is None or dtype is None:
        return None
    # Nothing is allocated before the shape is known to be small.
    elements = math.prod(shape)
    if value is not None and elements == 1 and dtype not in _TEXT_KINDS:
        with np.errstate(all="ignore"):
            array = np.full(shape, value, np.float64).astype(dtype_of(dtype))
    elif value is None and elements == 0 and max(shape) < 1 << 31:
        kind = _TEXT_KINDS.get(dtype)
        array = np.zeros(shape, dtype_of(dtype) if kind is None else kind)
    elif value is None and min(shape, default=0) >= 0:
        return None
    else:
        raise DataCorrupted(
            f"the index has {value} for a tensor of shape {shape} and dtype {dtype}"
        )
    array.flags.writeable = False
    return array


def each(store: Store, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Apply a function to items, in as many threads as the store supports."""
    if store.parallel == 1 or len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(store.parallel, "smdebug-read") as pool:
        try:
            futures = [pool.submit(work, item) for item in items]
        except RuntimeError:
            # The interpreter is shutting down and starts no threads.
            return [work(item) for item in items]
        return [future.result() for future in futures]
