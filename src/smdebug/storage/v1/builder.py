"""Builder of the files of format v1: one event file and one JSON index file per step and worker."""

from __future__ import annotations

import json
import logging
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.exceptions import SMDebugError
from smdebug.reductions import (
    REDUCTIONS_PREFIX,
    Array,
    get_reduction_tensor_name,
    is_short_float,
    reverse_reduction_tensor_name,
)
from smdebug.storage.format import records
from smdebug.storage.format.checksum import add_json_checksum
from smdebug.storage.format.dtypes import dtype_name, dtype_of, plain_array, widen_for_v1
from smdebug.storage.format.events import encode_tensor
from smdebug.storage.format.keys import (
    IndexName,
    parse_index_key,
    v1_again_key,
    v1_event_key,
    v1_index_key,
)
from smdebug.storage.run_id import RunId
from smdebug.storage.v1.index import checked_json, parse_v1_step
from smdebug.storage.v2.compaction import run_of_index

if TYPE_CHECKING:
    from smdebug.storage.batch import Entry, StepBatch
    from smdebug.storage.stores.base import Buffer, Store

logger = logging.getLogger("smdebug.storage")


class V1Builder:
    """Publishes every step as an event file and an index file of format v1."""

    def __init__(self, store: Store, worker: str) -> None:
        self._store = store
        self._worker = worker
        self.run_id = RunId(store, worker, run_of_index)
        self._steps: dict[int, _StepFiles] = {}
        self.waiting = 0
        self.written = 0

    def add(self, batch: StepBatch) -> None:
        """Take the tensors of a step."""
        if batch.step not in self._steps:
            self._steps[batch.step] = _StepFiles(batch)
        self._steps[batch.step].add(batch)
        self.waiting += batch.nbytes

    def publish(self) -> None:
        """Write what was collected, each step's event file before its index file."""
        for step in list(self._steps):
            files = self._steps[step]
            key = v1_index_key(step, self._worker)
            previous = self._previous_files(key, step)
            files.append_to(previous)
            event_file = self._free_event_key(step) if files.chunks else None
            if event_file is not None:
                self._store.write(event_file, files.chunks)
            # Counted before, because the index file stores how often it was replaced.
            attempt = 0 if previous is None else self._times_replaced(step) + 1
            origin = {"step": step, "worker": self._worker, "attempt": attempt}
            index = files.index(event_file, {**origin, "run": self.run_id.find()})
            self._store.write(key, [index])
            self.run_id.published()
            if attempt:
                self._store.write(v1_again_key(step, self._worker, attempt), [])
            self.written += files.size + len(index)
            del self._steps[step]
        self.waiting = 0

    def _previous_files(self, key: str, step: int) -> _StepOnDisk | None:
        """Read what the run already has of a step: an index file names only one event file."""
        try:
            data = bytes(self._store.read(key))
            content = checked_json(data, key)
            old = parse_v1_step(data, key, IndexName(step, None, self._worker))
            events = self._store.read(old.event_file) if old.event_file else memoryview(b"")
        except KeyError:
            return None
        except SMDebugError as error:
            logger.warning("Replacing %s, which cannot be read: %s", key, error)
            return None
        return _StepOnDisk(content, events)

    def discard(self) -> None:
        """Drop what was collected."""
        self._steps.clear()
        self.waiting = 0

    def close(self) -> None:
        """Do nothing: every step is its own pair of files."""

    def _times_replaced(self, step: int) -> int:
        start = v1_again_key(step, self._worker, 0).removesuffix("000000.again")
        names = map(parse_index_key, self._store.list(start))
        return max((name.attempt for name in names if name is not None), default=0)

    def _free_event_key(self, step: int) -> str:
        # A resumed run that saves a step again must not change bytes that a reader has mapped; the
        # index file, which is replaced atomically, points to the new ones.
        existing = set(self._store.list(v1_event_key(step, self._worker).removesuffix(".tfevents")))
        attempt = 0
        while v1_event_key(step, self._worker, attempt) in existing:
            attempt += 1
        return v1_event_key(step, self._worker, attempt)


class _StepOnDisk(NamedTuple):
    """The two files of a step that was saved before."""

    content: dict[str, Any]
    events: memoryview


class _StepFiles:
    """The two files of a step while they are being built."""

    def __init__(self, batch: StepBatch) -> None:
        self.mode, self.mode_step = batch.mode, batch.mode_step
        self.step = batch.step
        self.chunks: list[Buffer] = []
        self.size = 0
        self._tensors: list[dict[str, Any]] = []
        self._shapes: list[dict[str, Any]] = []
        self._names: set[str] = set()

    def add(self, batch: StepBatch) -> None:
        for entry in chain(batch.entries, *(block.entries() for block in batch.blocks)):
            if entry.name in self._names:
                # Saved again at the same step: the later one replaces it as a whole.
                self._tensors = _others(self._tensors, {entry.name})
                self._shapes = _others(self._shapes, {entry.name})
            self._names.add(entry.name)
            time = batch.time if entry.time is None else entry.time
            for name, value in entry.reductions.items():
                plain, absolute = name.removeprefix("abs_"), name.startswith("abs_")
                record = get_reduction_tensor_name(entry.name, plain, absolute, False)
                self._add_record(record, _reduction_array(entry, value), time)
            if entry.value is not None:
                self._add_value(entry.name, widen_for_v1(plain_array(entry.value)), time)
            elif entry.shape is not None:
                self._add_shape(entry.name, entry.shape, entry.dtype, entry.original_name)

    def _add_value(self, name: str, array: Array, time: float) -> None:
        if array.size:
            self._add_record(name, array, time)
        else:
            # The format has no record for it; its shape and type are its whole content.
            self._add_shape(name, array.shape, dtype_name(array.dtype))

    def _add_shape(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str | None,
        original_name: str | None = None,
    ) -> None:
        names = {"tensorname": name, "originalname": original_name or name}
        self._shapes.append({**names, "shape": list(shape), "dtype": dtype})

    def _add_record(self, name: str, array: Array, time: float) -> None:
        payload = encode_tensor(
            name, array, step=self.step, mode=self.mode, mode_step=self.mode_step,
            wall_time=time, v1=True,
        )  # fmt: skip
        chunks = records.frame(payload, v1=True)
        length = sum(len(chunk) for chunk in chunks)
        entry = {"tensorname": name, "start_idx": self.size, "length": length}
        self._tensors.append({**entry, "crc32c": records.checksum(payload)})
        self.chunks += chunks
        self.size += length

    def append_to(self, previous: _StepOnDisk | None) -> None:
        """Keep what was saved of the step before, except tensors that are saved again."""
        if previous is None:
            return
        content, events = previous
        new = self._names
        shift = len(events)
        moved = [{**item, "start_idx": item["start_idx"] + shift} for item in self._tensors]
        self._tensors = [*_others(content.get("tensor_payload"), new), *moved]
        self._shapes = [*_others(content.get("shape_payload"), new), *self._shapes]
        self.chunks = [events, *self.chunks] if shift else self.chunks
        self.size += shift

    def index(self, event_file: str | None, origin: dict[str, Any]) -> bytes:
        meta: dict[str, Any] = {"mode": self.mode.name, "mode_step": self.mode_step}
        if event_file is not None:
            meta["event_file_name"] = event_file
        content: dict[str, Any] = {"meta": meta}
        if self._tensors or not self._shapes:
            content["tensor_payload"] = self._tensors
        if self._shapes:
            content["shape_payload"] = self._shapes
        content["origin"] = origin
        return add_json_checksum(json.dumps(content))


def _others(payload: Any, tensors: set[str]) -> list[dict[str, Any]]:
    """Return the records of other tensors: neither their values nor their reductions."""
    return [item for item in payload or [] if _tensor_of(item["tensorname"]) not in tensors]


def _tensor_of(record: str) -> str:
    if record.startswith(REDUCTIONS_PREFIX):
        return reverse_reduction_tensor_name(record)[0]
    return record


def _reduction_array(entry: Entry, value: float) -> Array:
    dtype = entry.value.dtype if entry.value is not None else None
    if dtype is None and entry.dtype not in (None, "str", "bytes"):
        dtype = dtype_of(str(entry.dtype))
    wide = np.float64(value)
    if dtype is None or not is_short_float(dtype):
        return np.asarray(wide)
    with np.errstate(all="ignore"):
        short = np.float32(wide)
    # Compared as float64: with a Python float numpy would compare as float32.
    return np.asarray(short if np.float64(short) == wide or np.isnan(wide) else wide)
