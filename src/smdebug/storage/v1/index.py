"""The JSON index of format v1, and many v1 steps as a `Segment`.

Index files written here have checksums in keys that smdebug 1.0 ignores. Its own files have none,
so only the framing of their records can be checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.exceptions import IndexReaderException, SMDebugValueError
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import REDUCTION_NAMES, REDUCTIONS_PREFIX, get_reduction_tensor_name
from smdebug.storage.arrow import from_list, from_numpy, pa
from smdebug.storage.format.checksum import check_json_checksum
from smdebug.storage.format.keys import is_event_file_of
from smdebug.storage.raw_tensors import RecordLocation
from smdebug.storage.segment_summary import StepArrays, mode_bit
from smdebug.storage.untrusted.limits import DIMENSIONS, check_json
from smdebug.storage.v2.index import EMPTY, SCHEMA, table_of

if TYPE_CHECKING:
    from smdebug.storage.format.keys import IndexName

_SEQ = -(10**6)


@dataclass(frozen=True)
class V1Step:
    """A parsed index file: the location of each record, in the order of `names`."""

    step: int
    mode: int
    mode_step: int
    event_file: str | None
    names: tuple[str, ...]
    locations: list[tuple[int, int, int | None]]
    shapes: dict[str, tuple[tuple[int, ...], str | None]]
    originals: dict[str, str]
    # Rows of format v1 are older than any of v2 in the same run.
    seq: int = _SEQ
    # The run ID; None if it has none.
    run: str | None = None


def parse_v1_step(data: bytes, key: str, name: IndexName) -> V1Step:
    """Parse and check an index file of format v1.

    Raises:
        IndexReaderException: it is not such a file, its checksum is wrong, or it is that of
            another step, worker or time.
        SMDebugValueError: its mode step is negative.
    """
    content = checked_json(data, key)
    meta = content.get("meta")
    if not isinstance(meta, dict) or not meta:
        raise IndexReaderException(f"{key}: 'meta' is missing or empty")
    if "tensor_payload" not in content and "shape_payload" not in content:
        raise IndexReaderException(f"{key}: neither 'tensor_payload' nor 'shape_payload' is there")
    try:
        mode = ModeKeys[meta.get("mode", "GLOBAL")].value
        mode_step = _integer(meta.get("mode_step", name.step))
        event_file = _text(meta.get("event_file_name"), optional=True)
        tensors = {
            _text(item["tensorname"]): (
                _size(item["start_idx"]),
                _size(item["length"]),
                None if item.get("crc32c") is None else _size(item["crc32c"]),
            )
            for item in content.get("tensor_payload") or []
        }
        shapes, originals = {}, {}
        for item in content.get("shape_payload") or []:
            tensor = _text(item["tensorname"])
            shape = tuple(_size(size) for size in item["shape"])
            if len(shape) > DIMENSIONS:
                raise ValueError(f"expected at most {DIMENSIONS} dimensions, got {len(shape)}")
            shapes[tensor] = (shape, _text(item.get("dtype"), optional=True))
            originals[tensor] = _text(item.get("originalname", tensor), optional=True) or tensor
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IndexReaderException(f"{key}: not an index file of a run: {error!r}") from error
    if mode_step < 0:
        raise SMDebugValueError(f"{key}: mode_step must not be negative, got {mode_step}")
    if tensors and event_file is None:
        raise IndexReaderException(f"{key}: tensors are listed without a file to read them from")
    if event_file is not None and not is_event_file_of(event_file, key):
        raise IndexReaderException(
            f"{key}: it names the event file {event_file}, which is not that of its name"
        )
    return V1Step(
        name.step,
        mode,
        mode_step,
        event_file,
        tuple(tensors),
        list(tensors.values()),
        shapes,
        originals,
        _SEQ + name.attempt,
        _run(content.get("origin"), key, name),
    )


def _run(origin: Any, key: str, name: IndexName) -> str | None:
    """Return the run ID of a file whose step, worker and age agree with its name."""
    if origin is None:
        return None
    if not isinstance(origin, dict):
        raise IndexReaderException(f"{key}: 'origin' must be an object, got {origin!r}")
    for field, expected in (("step", name.step), ("worker", name.worker)):
        if origin.get(field) != expected:
            raise IndexReaderException(
                f"{key}: the file is that of {field} {origin.get(field)!r}, not of {expected!r}"
            )
    attempt, run = origin.get("attempt"), origin.get("run")
    if not isinstance(attempt, int) or attempt < name.attempt:
        raise IndexReaderException(
            f"{key}: the file is older than the {name.attempt}. time its step was saved again"
        )
    return run if isinstance(run, str) else None


def _text(value: Any, optional: bool = False) -> Any:
    if isinstance(value, str):
        # A lone surrogate, which JSON can encode, is not a valid string.
        value.encode()
        return value
    if optional and value is None:
        return value
    raise TypeError(f"expected text, got {value!r}")


def _integer(value: Any) -> int:
    # smdebug 1.0 accepts what int() accepts; numbers must fit int64.
    number = int(value) if not isinstance(value, float) or value.is_integer() else None
    if number is None or abs(number) >= 1 << 63:
        raise ValueError(f"expected an integer, got {value!r}")
    return number


def _size(value: Any) -> int:
    if isinstance(value, bool) or _integer(value) < 0:
        raise ValueError(f"expected a size, got {value!r}")
    return _integer(value)


def checked_json(data: bytes, key: str) -> dict[str, Any]:
    """Parse an index file; verify its checksum if it has one."""
    verified = check_json_checksum(data, key)
    try:
        content = json.loads(check_json(data, key))
    except (ValueError, RecursionError) as error:
        raise IndexReaderException(f"{key}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise IndexReaderException(f"{key}: expected a JSON object")
    payload = content.get("tensor_payload")
    checked = isinstance(payload, list) and any(
        isinstance(item, dict) and "crc32c" in item for item in payload
    )
    if not verified and (checked or {"crc32c", "origin"} & set(content)):
        raise IndexReaderException(f"{key}: the file's checksum is damaged")
    return content


ReadScalars = Callable[[list[RecordLocation]], list[float]]


class _Records:
    """The record names of a step, parsed once for all steps that save the same."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        # tensor -> column ("" is the raw value) -> position among the records
        self.positions: dict[str, dict[str, int]] = {}
        for position, name in enumerate(names):
            tensor, column = _split_reduction(name)
            self.positions.setdefault(tensor, {})[column] = position


def _split_reduction(name: str) -> tuple[str, str]:
    if not name.startswith(REDUCTIONS_PREFIX):
        return name, ""
    reduction, _, tensor = name[len(REDUCTIONS_PREFIX) :].partition("/")
    return tensor, reduction


class V1Segment:
    """Many v1 steps of one worker as a `Segment`; reductions are read on demand."""

    def __init__(self, worker: str, steps: list[V1Step], read_scalars: ReadScalars) -> None:
        self.worker = worker
        self.names: dict[str, int] = {}
        # Names in the framework's graph, of tensors with another name here.
        self.originals: dict[str, str] = {}
        self._read_scalars = read_scalars
        self._steps: list[tuple[V1Step, _Records]] = []
        shared: dict[tuple[str, ...], _Records] = {}
        # A step that was saved again is there twice; the newer one counts.
        newest = {each.step: each for each in sorted(steps, key=lambda each: each.seq)}
        for step in sorted(newest.values(), key=lambda each: each.step):
            record = shared.setdefault(step.names, _Records(step.names))
            # The shared names replace the step's own copy of the same strings.
            self._steps.append((replace(step, names=record.names), record))
            self.originals.update(step.originals)
            for name in (*step.shapes, *record.positions):
                self.names[name] = self.names.get(name, 0) | mode_bit(step.mode)
        rows = [[step.step, step.mode, step.mode_step, step.seq] for step, _ in self._steps]
        self._first_locations = {
            step.step: location
            for step, _ in self._steps
            if (location := _first_location(step)) is not None
        }
        self.steps = StepArrays(*np.array(rows, np.int64).reshape(-1, 4).T)

    def rows(
        self, tensor: str, columns: list[str], steps: set[int] | None = None
    ) -> pa.Table | None:
        hits = [
            (step, record.positions.get(tensor, {}))
            for step, record in self._steps
            if (tensor in record.positions or tensor in step.shapes)
            and (steps is None or step.step in steps)
        ]
        if not hits:
            return None
        return table_of({name: self._column(name, tensor, hits) for name in columns})

    def step_range(self) -> tuple[int, int]:
        return (self._steps[0][0].step, self._steps[-1][0].step) if self._steps else (0, -1)

    def names_within(self, begin: int, end: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for step, record in self._steps:
            if begin <= step.step < end:
                for name in (*step.shapes, *record.positions):
                    found[name] = found.get(name, 0) | mode_bit(step.mode)
        return found

    def table(self, columns: list[str] | None = None) -> pa.Table:
        names = SCHEMA.names if columns is None else columns
        tables = [self.rows(tensor, names) for tensor in self.names]
        return pa.concat_tables([EMPTY.select(names), *tables])

    def part(self, begin: int, end: int) -> V1Segment:
        """Return only these steps, so that reductions of others are not read."""
        steps = [step for step, _ in self._steps if begin <= step.step < end]
        return V1Segment(self.worker, steps, self._read_scalars)

    def first_location(self, step: int) -> RecordLocation | None:
        """Return the first record of a step in its event file."""
        return self._first_locations.get(step)

    def present_columns(self) -> set[str]:
        """Return the columns with at least one value."""
        saved = {
            column
            for record in {id(record): record for _, record in self._steps}.values()
            for columns in record.positions.values()
            for column in columns
        }
        return {name for name in SCHEMA.names if name not in REDUCTION_NAMES or name in saved}

    def _column(self, name: str, tensor: str, hits: list[tuple[V1Step, dict[str, int]]]) -> Any:
        if name in REDUCTION_NAMES:
            return self._reductions(name, tensor, hits)
        read = _COLUMNS.get(name)
        kind = SCHEMA.field(name).type
        if name == "worker" or name == "tensor":
            text = self.worker if name == "worker" else tensor
            codes = from_numpy(np.zeros(len(hits), np.int32))
            return pa.DictionaryArray.from_arrays(codes, from_list([text], pa.string()))
        if read is None:
            return pa.nulls(len(hits), kind)
        values = [read(step, positions, tensor) for step, positions in hits]
        if pa.types.is_dictionary(kind):
            return from_list(values, pa.string()).dictionary_encode()
        return from_list(values, kind)

    def _reductions(
        self, name: str, tensor: str, hits: list[tuple[V1Step, dict[str, int]]]
    ) -> pa.Array:
        values = np.zeros(len(hits))
        saved = np.array([name in positions for _, positions in hits])
        record = get_reduction_tensor_name(tensor, name, False, False)
        wanted = [
            RecordLocation(
                str(step.event_file), *step.locations[positions[name]], record, step.step, True
            )
            for step, positions in hits
            if name in positions
        ]
        values[saved] = self._read_scalars(wanted)
        return from_numpy(values, saved)


def _first_location(step: V1Step) -> RecordLocation | None:
    if step.event_file is None or not step.locations:
        return None
    number = min(range(len(step.locations)), key=lambda each: step.locations[each][0])
    return RecordLocation(
        step.event_file, *step.locations[number], step.names[number], step.step, True
    )


def _raw(field: int) -> Callable[[V1Step, dict[str, int], str], int | None]:
    return lambda step, positions, tensor: (
        step.locations[positions[""]][field] if "" in positions else None
    )


# The value of a column from (step, positions of the tensor, tensor); others are null.
_COLUMNS: dict[str, Callable[[V1Step, dict[str, int], str], Any]] = {
    "step": lambda step, positions, tensor: step.step,
    "mode": lambda step, positions, tensor: ModeKeys(step.mode).name,
    "mode_step": lambda step, positions, tensor: step.mode_step,
    "dtype": lambda step, positions, tensor: step.shapes.get(tensor, (None, None))[1],
    "shape": lambda step, positions, tensor: step.shapes.get(tensor, (None, None))[0],
    "event_file": lambda step, positions, tensor: step.event_file if "" in positions else None,
    "offset": _raw(0),
    "length": _raw(1),
    "checksum": _raw(2),
    "position": lambda step, positions, tensor: min(positions.values(), default=len(step.names)),
    "seq": lambda step, positions, tensor: step.seq,
}
