"""TensorBoard files: scalars and histograms of a run, one growing file for each mode."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from smdebug.config.collection import NON_REDUCTION_COLLECTIONS
from smdebug.exceptions import StoreError
from smdebug.storage.records import frame
from smdebug.storage.store import open_store
from smdebug.storage.summaries import encode_file_version, encode_histogram, encode_scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from smdebug.hook.plan import Want
    from smdebug.mode_keys import ModeKeys
    from smdebug.storage.batch import Entry, StepBatch
    from smdebug.storage.store import Buffer

logger = logging.getLogger("smdebug.hook")

# A store takes whole objects only: there a file is written when so much waits for it, or so long.
_MOST_BYTES, _MOST_SECONDS = 1 << 20, 60.0
# How much is kept for a store that does not answer: the run waits for nothing but its own store.
_MOST_KEPT = 64 << 20


class TensorboardFiles:
    """Writes what TensorBoard shows, beside a run.

    Args:
        directory: a directory or a URL; each mode gets a directory in it.
        worker: the worker, where it is not the first one: its files stand apart.
    """

    def __init__(self, directory: str, worker: str | None = None) -> None:
        self._directory = directory
        self._suffix = "" if worker is None else f"_{worker}"
        self._files: dict[ModeKeys, _GrowingFile | _ObjectFiles] = {}
        self._failed = False

    def take(self, batch: StepBatch, wants: Mapping[str, Want]) -> None:
        """Writes the scalars and histograms of a batch."""
        if self._failed:
            return
        events = [event for entry in batch.all_entries() if entry.name in wants
                  for event in _events(entry, wants[entry.name], batch)]  # fmt: skip
        if not events:
            return
        try:
            self._file(batch).write([chunk for event in events for chunk in frame(event)])
        except Exception as error:
            self._fail(error)

    def flush(self) -> None:
        """Publishes what waits."""
        for file in self._files.values():
            try:
                file.flush()
            except Exception as error:
                self._fail(error)

    def close(self) -> None:
        """Publishes what waits and lets the files go."""
        for file in self._files.values():
            try:
                file.close()
            except Exception as error:
                self._fail(error)

    def _file(self, batch: StepBatch) -> _GrowingFile | _ObjectFiles:
        if batch.mode not in self._files:
            place = f"{self._directory.rstrip('/')}/{batch.mode.name}{self._suffix}"
            kind = _ObjectFiles if "://" in place else _GrowingFile
            self._files[batch.mode] = kind(place, batch.step)
        return self._files[batch.mode]

    def _fail(self, error: Exception) -> None:
        self._failed = True
        logger.warning(
            "TensorBoard files are not written any more, the run is saved as ever: %s", error
        )


class _GrowingFile:
    """A file that can be read while it grows.

    Args:
        place: its directory.
        step: the step it begins with.
    """

    def __init__(self, place: str, step: int) -> None:
        folder = Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        # Never one that is there: a process may write twice.
        name, number = _file_name(step), 0
        while True:
            try:
                self._file: BinaryIO = (folder / f"{name}{number or ''}.tfevents").open("xb", 0)
                break
            except FileExistsError:
                number += 1
        self.write(frame(encode_file_version(time.time())))

    def write(self, chunks: list[Buffer]) -> None:
        """Adds events; a reader sees them at once."""
        self._file.write(b"".join(chunks))

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        self._file.close()


class _ObjectFiles:
    """Files in an object store, each of which is written whole.

    Args:
        place: a URL.
        step: the step that the first one begins with.
    """

    def __init__(self, place: str, step: int) -> None:
        self._store = open_store(place)
        self._name = _file_name(step)
        self._number = 0
        self._error: StoreError | None = None
        self._forget()

    def write(self, chunks: list[Buffer]) -> None:
        """Adds events, which are published when there are many, or after a while."""
        self._waiting += chunks
        self._bytes += sum(len(chunk) for chunk in chunks)
        if self._error is not None and self._bytes > _MOST_KEPT:
            raise self._error
        # A store that did not answer is left alone for a while.
        many = self._bytes >= _MOST_BYTES and self._error is None
        if many or time.monotonic() - self._since > _MOST_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Publishes what waits as one more file; what a store does not take now waits on."""
        if not self._waiting:
            return
        head = frame(encode_file_version(time.time()))
        try:
            self._store.write(f"{self._name}{self._number:06}.tfevents", [*head, *self._waiting])
        except StoreError as error:
            if self._error is None:
                logger.warning("TensorBoard files have to wait: %s", error)
            self._error, self._since = error, time.monotonic()
            return
        self._error = None
        self._number += 1
        self._forget()

    def close(self) -> None:
        """Publishes what waits.

        Raises:
            StoreError: it cannot be.
        """
        self.flush()
        if self._error is not None:
            raise self._error

    def _forget(self) -> None:
        self._waiting: list[Buffer] = []
        self._bytes = 0
        self._since = time.monotonic()


def _file_name(step: int) -> str:
    return f"{step:012}_{os.getpid()}_{socket.gethostname()}_"


def _events(entry: Entry, want: Want, batch: StepBatch) -> Iterator[list[Buffer]]:
    moment = batch.time if entry.time is None else entry.time
    if not NON_REDUCTION_COLLECTIONS.isdisjoint(want.collections):
        number = entry.number
        if number is not None:
            yield encode_scalar(tag(entry.name), number, step=batch.step, wall_time=moment)
        return
    group = want.collections[0] if want.histogram is None else want.histogram
    for name, number in entry.reductions.items():
        full = tag(f"{group}/{entry.name}/{name}")
        yield encode_scalar(full, number, step=batch.step, wall_time=moment)
    if entry.histogram is not None:
        full = tag(f"{group}/{entry.name}")
        yield encode_histogram(full, entry.histogram, step=batch.step, wall_time=moment)


def tag(name: str) -> str:
    """A name as TensorBoard takes it.

    Example:
        >>> tag("/weights/layer:0 a")
        'weights/layer_0_a'
    """
    return re.sub(r"[^-/\w.]", "_", name, flags=re.ASCII).lstrip("/")
