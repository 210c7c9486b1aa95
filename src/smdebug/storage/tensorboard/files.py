"""TensorBoard files: one growing file per mode, and the events in them."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO

from smdebug.exceptions import StoreError
from smdebug.mode_keys import ModeKeys
from smdebug.storage.format.records import frame
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.tensorboard.summaries import (
    encode_file_version,
    encode_histogram,
    encode_scalar,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from smdebug.histogram import Histogram
    from smdebug.storage.stores.base import Buffer, Store

logger = logging.getLogger("smdebug.hook")

# An object store takes whole objects: a file is written at this size or age.
_MAX_BYTES, _MAX_SECONDS = 1 << 20, 60.0
# How many bytes are kept while a store does not answer: the run does not wait for it.
_MAX_KEPT = 64 << 20
_FILE = re.compile(r"^[A-Z]+(_[^/]+)?/\d{12}_\d+_[^/]*_\d*\.tfevents$")


class ModeFiles:
    """TensorBoard files, with a directory per mode.

    Args:
        directory: a directory or a URL.
        worker: the worker if it is not the first one: it has directories of its own.
    """

    def __init__(self, directory: str, worker: str | None = None) -> None:
        self._directory = directory.rstrip("/")
        # TensorFlow's device names are paths.
        self._suffix = "" if worker is None else f"_{tag(worker).replace('/', '_')}"
        self._files: dict[ModeKeys, _GrowingFile | _ObjectFiles] = {}

    def write(
        self, mode: ModeKeys, step: int, wall_time: float, events: Sequence[Sequence[Buffer]]
    ) -> None:
        """Add events of a mode.

        Args:
            mode: the mode.
            step: their step; the first one is part of the file name.
            wall_time: their time; TensorBoard's relative times start with the first one.
            events: encoded events.
        """
        if mode not in self._files:
            folder = mode.name + self._suffix
            store = open_store(self._directory)
            if isinstance(store, LocalStore):
                self._files[mode] = _GrowingFile(store, folder, step, wall_time)
            else:
                self._files[mode] = _ObjectFiles(store, folder, step, wall_time)
        self._files[mode].write([chunk for event in events for chunk in frame(event)])

    def flush(self) -> None:
        """Publish pending events."""
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """Publish pending events and close the files.

        Raises:
            StoreError: an object store did not accept all of them.
        """
        with ExitStack() as stack:
            for file in self._files.values():
                stack.callback(file.close)


class _GrowingFile:
    """File that can be read while it grows.

    Args:
        store: where the directories of all modes are.
        folder: the directory of this mode.
        step: the first step.
        wall_time: the time of the first step.
    """

    def __init__(self, store: LocalStore, folder: str, step: int, wall_time: float) -> None:
        # Never an existing file: a process may write twice.
        name, number = f"{folder}/{_file_name(step)}", 0
        while True:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                file = store.open(f"{name}{number or ''}.tfevents", flags)
                break
            except FileExistsError:
                number += 1
        self._file: BinaryIO = os.fdopen(file, "wb", 0)
        self.write(frame(encode_file_version(wall_time)))

    def write(self, chunks: list[Buffer]) -> None:
        """Add events; readers see them at once."""
        data = memoryview(b"".join(chunks))
        while data:
            # A disk that is nearly full accepts a part, and raises only at the next write.
            data = data[self._file.write(data) :]

    def flush(self) -> None:
        """Do nothing: every write is visible at once."""

    def close(self) -> None:
        self._file.close()


class _ObjectFiles:
    """Files in an object store, each written as a whole.

    Args:
        store: where the directories of all modes are.
        folder: the directory of this mode.
        step: the first step.
        wall_time: the time of the first step.
    """

    def __init__(self, store: Store, folder: str, step: int, wall_time: float) -> None:
        self._store = store
        self._name = f"{folder}/{_file_name(step)}"
        self._wall_time = wall_time
        self._number = 0
        self._error: StoreError | None = None
        self._reset()

    def write(self, chunks: list[Buffer]) -> None:
        """Add events; they are published by size or age."""
        self._waiting += chunks
        self._bytes += sum(len(chunk) for chunk in chunks)
        if self._error is not None and self._bytes > _MAX_KEPT:
            raise self._error
        # After a failure the next attempt waits for the age limit.
        many = self._bytes >= _MAX_BYTES and self._error is None
        if many or time.monotonic() - self._since > _MAX_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Publish pending events as one more file; after a failure they stay pending."""
        if not self._waiting:
            return
        head = frame(encode_file_version(self._wall_time))
        try:
            self._store.write(f"{self._name}{self._number:06}.tfevents", [*head, *self._waiting])
        except StoreError as error:
            if self._error is None:
                logger.warning("Cannot write TensorBoard files now, will retry: %s", error)
            self._error, self._since = error, time.monotonic()
            return
        self._error = None
        self._number += 1
        self._reset()

    def close(self) -> None:
        """Publish pending events.

        Raises:
            StoreError: they cannot be written.
        """
        self.flush()
        if self._error is not None:
            raise self._error

    def _reset(self) -> None:
        self._waiting: list[Buffer] = []
        self._bytes = 0
        self._since = time.monotonic()


def files_in(directory: str) -> list[str]:
    """Return the keys of the TensorBoard files of all modes in a directory or URL."""
    store = open_store(directory)
    if not store.exists():
        return []
    return [key for mode in ModeKeys for key in store.list(mode.name) if _FILE.match(key)]


def remove_files(directory: str, keys: Sequence[str]) -> None:
    """Remove files that `files_in` returned."""
    store = open_store(directory)
    for key in keys:
        store.delete(key)


def _file_name(step: int) -> str:
    return f"{step:012}_{os.getpid()}_{socket.gethostname()}_"


def number_event(name: str, number: float, *, step: int, wall_time: float) -> list[Buffer]:
    """Encode the event of a scalar."""
    return encode_scalar(tag(name), number, step=step, wall_time=wall_time)


def tensor_events(
    collection: str, name: str, reductions: Mapping[str, float], histogram: Histogram | None,
    *, step: int, wall_time: float,
) -> Iterator[list[Buffer]]:  # fmt: skip
    """Encode the events of any other tensor: each of its reductions is a scalar.

    Args:
        collection: the collection, the first part of its tag.
        name: its name.
        reductions: its reductions.
        histogram: its histogram, if it is shown.
        step: the step, over all modes.
        wall_time: seconds since 1970.
    """
    for reduction, number in reductions.items():
        full = tag(f"{collection}/{name}/{reduction}")
        yield encode_scalar(full, number, step=step, wall_time=wall_time)
    if histogram is not None:
        full = tag(f"{collection}/{name}")
        yield encode_histogram(full, histogram, step=step, wall_time=wall_time)


def tag(name: str) -> str:
    """Return a name as a valid tag.

    Example:
        >>> tag("/weights/layer:0 a")
        'weights/layer_0_a'
    """
    return re.sub(r"[^-/\w.]", "_", name, flags=re.ASCII).lstrip("/")
