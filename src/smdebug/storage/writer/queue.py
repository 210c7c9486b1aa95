"""What the writer's thread has in hand: orders, the open step, and finished ones in a builder."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.storage.batch import StepBatch
    from smdebug.storage.run_id import RunId


class Builder(Protocol):
    """Gathers steps and publishes them in one of the formats."""

    waiting: int
    written: int
    identity: RunId

    def add(self, batch: StepBatch) -> None: ...
    def publish(self) -> None: ...
    def discard(self) -> None: ...
    def close(self) -> None: ...


@dataclass
class WriterStats:
    """What a writer did and what it cost the training thread."""

    steps: int = 0
    segments: int = 0
    bytes: int = 0
    seconds_waited: float = 0.0


class WriterCommand:
    """Something other than data for the thread to do."""

    def __init__(self, what: str, text: str = "") -> None:
        self.what = what
        self.text = text
        self.done = False


class PendingSteps:
    """The steps the thread holds: finished ones are in the builder, the open one waits here."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._open: list[StepBatch] = []
        self._releases: list[Callable[[], None]] = []
        self._open_weight = 0
        # What the batches of finished steps weighed in the queue.
        self.weight = 0
        self.finished: set[int] = set()
        self.finished_at: float | None = None

    @property
    def open_steps(self) -> set[int]:
        return {batch.step for batch in self._open}

    def hold(self, release: Callable[[], None]) -> None:
        """Takes over memory, to be given back by this call when it is no longer needed."""
        self._releases.append(release)

    def take(self, batch: StepBatch, weight: int) -> None:
        if self._open and self._open[0].step != batch.step:
            self.finish()
        self._open.append(batch)
        self._open_weight += weight

    def finish(self) -> None:
        if not self._open:
            return
        for batch in self._open:
            self._builder.add(batch)
        self.finished.add(self._open[0].step)
        self.weight += self._open_weight
        self._open, self._open_weight = [], 0
        if self.finished_at is None:
            self.finished_at = time.monotonic()

    def published(self) -> None:
        """Forgets what the builder held; memory that is still needed stays the open step's."""
        if not self._open:
            self.release()
        self.weight = 0
        self.finished = set()
        self.finished_at = None

    def give_up(self) -> None:
        """Forgets everything, because it cannot be published."""
        self._open, self._open_weight = [], 0
        self.published()

    def release(self) -> None:
        """Gives the memory of everything taken back to whoever made it."""
        releases, self._releases = self._releases, []
        for release in releases:
            release()
