"""Batches, stores that count, block or fail, and what a run holds: for the tests of the writer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, PendingBatch, StepBatch
from smdebug.storage.raw_tensors import VALUE_COLUMNS, record_locations
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from smdebug.storage.stores.base import Buffer, Store

FORMATS = ["v1", "v2"]
# Long enough for a busy machine; only a hang takes this long.
PATIENCE = 5


def batch_of(step: int, *entries: Entry, mode: ModeKeys = ModeKeys.TRAIN) -> StepBatch:
    return StepBatch(step, mode, step, list(entries) or [make_entry(step)], 1.5)


def make_entry(value: float, name: str = "x", size: int = 3) -> Entry:
    return Entry(name, np.full(size, value))


def steps_in(store: Store) -> list[int]:
    reader = RunReader(store)
    reader.refresh()
    return sorted({int(step) for arrays in reader.steps().values() for step in arrays.step})


def values_in(store: Store, tensor: str = "x") -> dict[int, float]:
    """The first element of a tensor at every step."""
    reader = RunReader(store)
    reader.refresh()
    table = reader.rows(tensor, VALUE_COLUMNS)
    locations = record_locations(table, tensor)
    read = iter(reader.read_values([location for location in locations if location]))
    return {
        row["step"]: row["value"] if location is None else float(next(read).reshape(-1)[0])
        for row, location in zip(table.to_pylist(), locations, strict=True)
    }


def outcome(call: Callable[[], object]) -> object:
    """What a call returns or raises; a call that does not come back fails the test."""
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the call hangs"
    return answers[0]


class CountingStore(MemoryStore):
    """Counts the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        self.lists = self.reads = self.deletes = 0

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        self.writes.append(key)
        super().write(key, chunks)

    def list(self, prefix: str = "", after: str = "") -> Any:
        self.lists += 1
        return super().list(prefix, after)

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        self.reads += 1
        return super().read(key, start, length)

    def delete(self, key: str) -> None:
        self.deletes += 1
        super().delete(key)


class BlockingStore(MemoryStore):
    """A store that writes nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.go = threading.Event()

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        self.entered.set()
        assert self.go.wait(PATIENCE * 3)
        super().write(key, chunks)


class FailingStore(MemoryStore):
    """Fails to write keys that contain a text."""

    def __init__(self, text: str = "", error: BaseException | None = None) -> None:
        super().__init__()
        self.text = text
        self.error = error or OSError(28, "No space left on device")

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        if self.text in key:
            raise self.error
        super().write(key, chunks)


class Panic(BaseException):
    """What a native library raises when it panics."""


class Memory:
    """Counts what was lent to the writer and came back."""

    def __init__(self) -> None:
        self.needs_release = self.returned = 0

    def pending(self, step: int, make: Callable[[], StepBatch] | None = None) -> PendingBatch:
        self.needs_release += 1
        batch = batch_of(step)
        return PendingBatch(step, batch.nbytes, make or (lambda: batch), self.take_back)

    def take_back(self) -> None:
        self.returned += 1
