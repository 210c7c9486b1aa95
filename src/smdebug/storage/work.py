"""What the writer's thread has in hand: orders, the open step, and finished ones in a builder."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from smdebug.storage.batch import StepBatch


class Builder(Protocol):
    """Gathers steps and publishes them in one of the formats."""

    waiting: int
    written: int

    def add(self, batch: StepBatch) -> None: ...
    def publish(self) -> None: ...
    def discard(self) -> None: ...
    def close(self) -> None: ...


class Order:
    """Something other than data for the thread to do."""

    def __init__(self, what: str, text: str = "") -> None:
        self.what = what
        self.text = text
        self.done = False


class Work:
    """The steps the thread holds: finished ones are in the builder, the open one waits here."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._open: list[StepBatch] = []
        self.finished: set[int] = set()
        self.finished_at: float | None = None

    @property
    def open_steps(self) -> set[int]:
        return {batch.step for batch in self._open}

    def take(self, batch: StepBatch) -> None:
        if self._open and self._open[0].step != batch.step:
            self.finish()
        self._open.append(batch)

    def finish(self) -> None:
        if not self._open:
            return
        for batch in self._open:
            self._builder.add(batch)
        self.finished.add(self._open[0].step)
        self._open = []
        if self.finished_at is None:
            self.finished_at = time.monotonic()

    def published(self) -> None:
        self.finished = set()
        self.finished_at = None
