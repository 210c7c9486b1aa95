"""Raw tensors: reading the records that the index points to, each checked before it is a value."""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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

# Records of one remote file that lie this close are fetched by one request.
_GAP = 1 << 20
_MOST_FILES_OPEN = 64
# The key and the double that an event begins with.
_TIME_BYTES = 9
# From here on verifying a record again costs more than remembering that it was.
_LARGE = 1 << 20
_VERIFIERS = min(os.cpu_count() or 1, 8)

T = TypeVar("T")
R = TypeVar("R")


class RecordLocation(NamedTuple):
    """Where a record lies and what it must hold."""

    event_file: str
    offset: int
    length: int
    checksum: int | None
    tensor: str
    step: int
    # Written as v1: its footer may be the constant.
    classic: bool = False
    digest: int | None = None


class RawReader:
    """Reads raw tensors of a run.

    Args:
        store: where the run is kept.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._events: OrderedDict[str, _EventFile] = OrderedDict()

    def read_values(self, places: Sequence[RecordLocation]) -> list[Array]:
        """Reads records; each is checked, and must hold the tensor and step it is said to hold.

        Local values are read-only views on the mapped file.

        Raises:
            DataCorrupted: a record fails a check.
            KeyError: an event file is not there.
        """
        if self._store.remote:
            return self._read_remote(places, _value)
        files = [self._event_file(place.event_file) for place in places]
        large = sum(place.length >= _LARGE for place in places)
        if large < 2:
            return [file.value(place) for file, place in zip(files, places, strict=True)]
        # Verifying releases the GIL: large records are verified side by side.
        with ThreadPoolExecutor(min(large, _VERIFIERS), "smdebug-verify") as pool:
            return list(pool.map(_EventFile.value, files, places))

    def read_times(self, places: Sequence[RecordLocation]) -> list[float]:
        """When records were made, in seconds since 1970; each is checked as a value is."""
        if self._store.remote:
            return self._read_remote(places, _time)
        return [self._event_file(place.event_file).time(place) for place in places]

    def read_events(self, places: Sequence[RecordLocation]) -> list[Event | Exception]:
        """Reads records as `read_values` does; what is wrong with one stands in its place.

        Raises:
            StoreError: an object store gives no answer.
        """
        if self._store.remote:
            return self._remote_events(places)
        files = [_attempt(self._event_file, place.event_file) for place in places]
        large = sum(place.length >= _LARGE for place in places)
        if large < 2:
            return list(map(_event_of, files, places))
        with ThreadPoolExecutor(min(large, _VERIFIERS), "smdebug-verify") as pool:
            return list(pool.map(_event_of, files, places))

    def _remote_events(self, places: Sequence[RecordLocation]) -> list[Event | Exception]:
        spans = _spans(places)
        data = each(
            self._store,
            partial(_attempt, partial(_read_span, self._store)),
            spans,
        )
        events: dict[int, Event | Exception] = {}
        for span, view in zip(spans, data, strict=True):
            for number in span.numbers:
                place = places[number]
                if isinstance(view, Exception):
                    events[number] = view
                    continue
                start = place.offset - span.start
                record = view[start : start + place.length]
                events[number] = _attempt(partial(_event, place=place), record)
        return [events[number] for number in range(len(places))]

    def file_time(self, key: str) -> float:
        """When the first record of an event file was made; only its first bytes are read."""
        data = self._store.read(check_key(key), 0, HEADER_SIZE + _TIME_BYTES)
        if len(data) < HEADER_SIZE + _TIME_BYTES:
            raise DataCorrupted("file ends inside a record", key=key, offset=0)
        payload_length(data, key=key, offset=0)
        # An event begins with its time, and a part of its fields is an event as well.
        return decode_event(data[HEADER_SIZE:], key=key, offset=0).wall_time

    def _read_remote(
        self, places: Sequence[RecordLocation], decode: Callable[[memoryview, RecordLocation], R]
    ) -> list[R]:
        spans = _spans(places)
        data = each(self._store, lambda span: _read_span(self._store, span), spans)
        values: dict[int, R] = {}
        for span, view in zip(spans, data, strict=True):
            for number in span.numbers:
                place = places[number]
                start = place.offset - span.start
                record = view[start : start + place.length]
                if 2 * place.length < len(view):
                    # A view would keep everything that lies around it in memory.
                    record = memoryview(bytes(record))
                values[number] = decode(record, place)
        return [values[number] for number in range(len(places))]

    def _event_file(self, key: str) -> _EventFile:
        if key in self._events:
            self._events.move_to_end(key)
            return self._events[key]
        file = _EventFile(self._store.read(check_key(key)))
        self._events[key] = file
        if len(self._events) > _MOST_FILES_OPEN:
            self._events.popitem(last=False)
        return file


class _EventFile:
    """A mapped event file; a large record is verified only when it is first read."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._verified: dict[RecordLocation, Array] = {}

    def value(self, place: RecordLocation) -> Array:
        if place in self._verified:
            return self._verified[place]
        if place.length < _LARGE:
            return _value(self._data[place.offset : place.offset + place.length], place)
        populate(self._data, place.offset, place.length)
        value = _value(self._data[place.offset : place.offset + place.length], place)
        self._verified[place] = value
        return value

    def event(self, place: RecordLocation) -> Event:
        if place.length >= _LARGE:
            populate(self._data, place.offset, place.length)
        return _event(self._data[place.offset : place.offset + place.length], place)

    def time(self, place: RecordLocation) -> float:
        return _time(self._data[place.offset : place.offset + place.length], place)


def _attempt(work: Callable[[T], R], item: T) -> R | Exception:
    """What comes of it, or what it failed with; a store without an answer is no such thing."""
    try:
        return work(item)
    except StoreError:
        raise
    except (KeyError, SMDebugError, OSError) as error:
        return error


def _event_of(file: _EventFile | Exception, place: RecordLocation) -> Event | Exception:
    return file if isinstance(file, Exception) else _attempt(file.event, place)


class _Span:
    """Neighbouring records of one file that one request fetches."""

    def __init__(self, key: str, start: int) -> None:
        self.key = key
        self.start = start
        self.end = start
        self.numbers: list[int] = []


def _spans(places: Sequence[RecordLocation]) -> list[_Span]:
    spans: list[_Span] = []
    order = sorted(range(len(places)), key=lambda n: (places[n].event_file, places[n].offset))
    for number in order:
        place = places[number]
        last = spans[-1] if spans else None
        if last is None or last.key != place.event_file or place.offset > last.end + _GAP:
            last = _Span(place.event_file, place.offset)
            spans.append(last)
        last.end = max(last.end, place.offset + place.length)
        last.numbers.append(number)
    return spans


def _read_span(store: Store, span: _Span) -> memoryview:
    return store.read(check_key(span.key), span.start, span.end - span.start)


def _value(record: memoryview, place: RecordLocation) -> Array:
    tensor = _event(record, place).values[0].tensor
    assert tensor is not None
    return tensor


def _time(record: memoryview, place: RecordLocation) -> float:
    return _event(record, place).wall_time


def _event(record: memoryview, place: RecordLocation) -> Event:
    where: dict[str, Any] = {
        "key": place.event_file,
        "offset": place.offset,
        "tensor": place.tensor,
    }
    if len(record) != place.length:
        raise DataCorrupted("file ends before the record does", **where)
    payload = open_record(
        record,
        expected=place.checksum,
        expected_digest=place.digest,
        classic=place.classic,
        **where,
    )
    event = decode_event(payload, key=place.event_file, offset=place.offset)
    value = event.values[0] if len(event.values) == 1 else None
    if value is None or value.tensor is None:
        raise DataCorrupted("the record holds no tensor", **where)
    if value.tag != place.tensor or event.step != place.step:
        raise DataCorrupted(
            f"the record holds tensor {value.tag} of step {event.step}, not of step {place.step}",
            **where,
        )
    return event


def places_of(table: pa.Table, tensor: str | None = None) -> list[RecordLocation | None]:
    """Where the raw values of rows lie; None for rows that have no record.

    Args:
        table: the rows.
        tensor: the tensor they are of; None when the rows say it themselves.
    """
    columns = [table[name].to_pylist() for name in _PLACE_COLUMNS]
    tensors = table["tensor"].to_pylist() if tensor is None else [tensor] * table.num_rows
    return [
        None
        if offset is None
        else RecordLocation(file, offset, length, checksum, name, step, seq < 0, digest)
        for file, offset, length, checksum, digest, step, seq, name in zip(
            *columns, tensors, strict=True
        )
    ]


_PLACE_COLUMNS = ("event_file", "offset", "length", "checksum", "digest", "step", "seq")
VALUE_COLUMNS = [*_PLACE_COLUMNS, "value", "dtype", "shape"]


def as_dtype(value: Array, name: str | None) -> Array:
    """Gives strings the kind the index names: bytes look like text in a record."""
    if name == "bytes" and value.dtype.kind == "U":
        if not value.size:
            return np.zeros(value.shape, np.bytes_)
        return np.char.encode(value, "utf-8", "surrogatepass")
    return value


_TEXT_KINDS = {"str": np.dtype("U1"), "bytes": np.dtype("S1")}


def value_in_index(value: float | None, dtype: str | None, shape: list[int] | None) -> Array | None:
    """The value of a row without a record: a scalar, or an empty tensor; else None."""
    if shape is None or dtype is None:
        return None
    # Nothing is made of a shape before it is known to be a small one.
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
        raise DataCorrupted(f"the index says {value} for a tensor of shape {shape} of {dtype}")
    array.flags.writeable = False
    return array


def each(store: Store, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Maps over items, as many at once as the store is good for."""
    if store.parallel == 1 or len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(store.parallel, "smdebug-read") as pool:
        try:
            futures = [pool.submit(work, item) for item in items]
        except RuntimeError:
            # The interpreter is ending, and gives out no threads any more.
            return [work(item) for item in items]
        return [future.result() for future in futures]
