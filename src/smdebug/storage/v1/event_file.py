"""Reader and writer of single event files, which scripts for smdebug 1.0 use directly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crc32c
import numpy as np

from smdebug.exceptions import DataCorrupted, SMDebugNotImplementedError, SMDebugValueError
from smdebug.mode_keys import MODE_PLUGIN_NAME, MODE_STEP_PLUGIN_NAME, ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.format.events import decode_event
from smdebug.storage.format.keys import parse_index_key, v1_event_key, v1_index_key_of
from smdebug.storage.format.records import OVERHEAD, iterate_records
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.v1.builder import V1Builder
from smdebug.storage.v1.index import parse_v1_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.reductions import Array
    from smdebug.storage.format.events import Event


class FileReader:
    """Reads one event file, of either format or of TensorBoard.

    Every record is checked, so `check` makes no difference. Records of format v1 have no checksum:
    if the file is in a run, the checksums in its index file are used.

    Example:
        >>> for name, step, value, mode, mode_step in FileReader(path).read_tensors():
        ...     print(name, step)  # doctest: +SKIP
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def _events(self) -> Iterator[Event]:
        try:
            data = LocalStore(self.path.parent).read(self.path.name)
        except KeyError:
            raise FileNotFoundError(f"there is no event file {self.path}") from None
        name = self.path.name
        sums = _sums_in_index(self.path)
        for offset, payload in iterate_records(data, name, v1=True):
            known = sums.pop(offset, None)
            if known is not None and known != (len(payload) + OVERHEAD, crc32c.crc32c(payload)):
                raise DataCorrupted("record is not what its index says", key=name, offset=offset)
            yield decode_event(payload, key=name, offset=offset)
        if sums:
            raise DataCorrupted("file ends before a record does", key=name, offset=min(sums))

    def read_tensors(
        self, check: str = "minimal"
    ) -> Iterator[tuple[str, int, Array, ModeKeys, int]]:
        """Yield (name, step, value, mode, mode step) of every tensor."""
        for event in self._events():
            for value in event.values:
                if value.tensor is not None:
                    number = value.metadata.get(MODE_PLUGIN_NAME, ModeKeys.GLOBAL.value)
                    try:
                        mode = ModeKeys(int(number))
                        mode_step = int(value.metadata.get(MODE_STEP_PLUGIN_NAME, event.step))
                    except ValueError as error:
                        raise DataCorrupted(
                            f"not the mode or the step of a tensor: {error}",
                            key=self.path.name, tensor=value.tag,
                        ) from error  # fmt: skip
                    yield value.tag, event.step, value.tensor, mode, mode_step

    def read_events(
        self, check: str = "minimal", regex_list: list[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return timestamp, step, name and value of every tensor and scalar.

        Args:
            check: without effect.
            regex_list: return only tensors with names that match one of these.
        """
        patterns = [re.compile(regex) for regex in regex_list or [""]]
        return [
            {
                "timestamp": event.wall_time,
                "step": event.step,
                "name": value.tag,
                "value": value.simple_value if value.tensor is None else value.tensor,
            }
            for event in self._events()
            for value in event.values
            if any(pattern.search(value.tag) for pattern in patterns)
        ]


def _sums_in_index(path: Path) -> dict[int, tuple[int, int]]:
    """Return length and CRC32C of the records of a v1 event file, from its index.

    Empty if there is no index file, or it has no checksums.

    Raises:
        IndexReaderException: the index file is damaged.
    """
    folder = path.absolute().parent
    key = v1_index_key_of(f"{folder.parent.name}/{folder.name}/{path.name}")
    name = None if key is None else parse_index_key(key)
    if key is None or name is None:
        return {}
    try:
        data = LocalStore(folder.parent.parent).read(key)
    except KeyError:
        return {}
    step = parse_v1_step(bytes(data), key, name)
    if step.event_file is None or step.event_file.rpartition("/")[2] != path.name:
        return {}
    return {at: (length, crc) for at, length, crc in step.locations if crc is not None}


class FileWriter:
    """Writes the event and index file of one step in format v1; on `close`, all at once.

    Args:
        trial_dir: the run.
        worker: the worker that writes.
        step: the global step.
        wtype: "events".
        mode: the mode of the step.
        **kwargs: `max_queue`, `flush_secs`, `verbose` and `write_checksum` of smdebug 1.0, which
            have no effect: a step is written at once, and always with checksums.

    Example:
        >>> with FileWriter(trial_dir, "worker_0", step=3) as writer:  # doctest: +SKIP
        ...     writer.write_tensor(array, "x", mode_step=3)
    """

    def __init__(
        self,
        trial_dir: str,
        worker: str,
        step: int = 0,
        wtype: str = "events",
        mode: ModeKeys = ModeKeys.GLOBAL,
        **kwargs: Any,
    ) -> None:
        if wtype != "events":
            raise SMDebugNotImplementedError(f"FileWriter writes wtype='events', got {wtype!r}")
        unknown = sorted(set(kwargs) - {"max_queue", "flush_secs", "verbose", "write_checksum"})
        if unknown:
            raise SMDebugValueError(f"FileWriter has no argument {', '.join(unknown)}")
        self._builder = V1Builder(open_store(trial_dir), worker)
        self._name = v1_event_key(step, worker)
        self._trial_dir, self._step, self._mode = trial_dir, step, mode

    def write_tensor(
        self,
        tdata: Any,
        tname: str,
        write_index: bool = True,
        mode: ModeKeys | None = None,
        mode_step: int | None = None,
        timestamp: float | None = None,
    ) -> None:
        """Add a tensor; a Python number becomes a tensor of one element."""
        if not write_index:
            raise SMDebugNotImplementedError(
                "a tensor without an index entry could never be found again; leave write_index on"
            )
        value = np.asarray(tdata)
        value = value.reshape(1) if np.isscalar(tdata) else value
        self._add(Entry(tname, value, time=timestamp), mode, mode_step)

    def write_shape(
        self,
        name: str,
        shape: tuple[int, ...],
        mode: ModeKeys | None = None,
        mode_step: int | None = None,
        original_name: str | None = None,
    ) -> None:
        """Add the shape of a tensor whose value is not written."""
        entry = Entry(name, shape=tuple(shape), original_name=original_name)
        self._add(entry, mode, mode_step)

    def _add(self, entry: Entry, mode: ModeKeys | None, mode_step: int | None) -> None:
        number = self._step if mode_step is None else mode_step
        self._builder.add(StepBatch(self._step, mode or self._mode, number, [entry]))

    def name(self) -> str:
        """The path of the event file."""
        return f"{str(self._trial_dir).rstrip('/')}/{self._name}"

    def flush(self) -> None:
        """Do nothing: `close` publishes the whole step."""

    def close(self) -> None:
        """Publish the step."""
        self._builder.publish()

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
