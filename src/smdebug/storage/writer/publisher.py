"""Publisher of one worker's steps: collects them, decides when to publish, writes the files.

It uses no thread and no lock: one thread at a time calls it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Protocol

from smdebug.exceptions import SMDebugValueError
from smdebug.storage.batch import PendingBatch, StepBatch
from smdebug.storage.end_marker import EndMarker
from smdebug.storage.format.collections_file import encode_collections
from smdebug.storage.format.keys import END_KEY, collections_key
from smdebug.storage.v1.builder import V1Builder
from smdebug.storage.v2.segment import SegmentBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.storage.run_id import RunId
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.storage")

# A segment of this size is published before its time: publishing takes some milliseconds plus the
# bytes, and a remote object is sent in one request from one buffer.
SEGMENT_BYTES, SEGMENT_BYTES_REMOTE = 256 << 20, 64 << 20
# How many seconds a finished step may wait to be published: at first, and at most.
_INTERVAL_LOCAL, _INTERVAL_REMOTE = (1.0, 30.0), (10.0, 60.0)
# The age of a run divided by this is the interval in between: every doubling of the age adds the
# same number of segments.
_SEGMENTS_PER_AGE = 500


def flush_interval(age: float, remote: bool, flush_seconds: float | None = None) -> float:
    """Return how many seconds a finished step may wait to be published.

    Args:
        age: the age of the run in seconds.
        remote: whether the store is remote, as `Store.remote`.
        flush_seconds: the interval the user chose, if any.

    Example:
        >>> flush_interval(0, remote=False), flush_interval(5000, remote=False)
        (1.0, 10.0)
    """
    if flush_seconds is not None:
        return flush_seconds
    shortest, longest = _INTERVAL_REMOTE if remote else _INTERVAL_LOCAL
    return max(shortest, min(age / _SEGMENTS_PER_AGE, longest))


class Builder(Protocol):
    """Collects finished steps and writes them in one of the formats."""

    waiting: int
    written: int
    run_id: RunId

    def add(self, batch: StepBatch) -> None: ...
    def publish(self) -> None: ...
    def discard(self) -> None: ...
    def close(self) -> None: ...


def _new_builder(store: Store, worker: str, format: str) -> Builder:
    if format == "v2":
        return SegmentBuilder(store, worker)
    if format == "v1":
        return V1Builder(store, worker)
    raise SMDebugValueError(f"Unknown format {format!r}. Choose from 'v1' and 'v2'.")


class Publisher:
    """Turns batches into segments (v2) or pairs of files (v1) and publishes them.

    Batches of the open step are kept until it is finished, so no reader sees half a step.

    Args:
        store: where the run is.
        worker: the name of this worker.
        format: "v2", or "v1" for files that smdebug 1.0 reads.
        flush_seconds: how long a finished step may wait; None for `flush_interval`.
        max_bytes: publish when this much has been collected, even if it is young.
        reopen: the run may be finished already: remove its end marker before publishing.
        on_published: called with the steps that were published and the bytes they took.
        clock: the time in seconds.

    Attributes:
        steps: how many steps were published.
        segments: how often something was published.
        bytes: how many bytes were published.
    """

    def __init__(
        self,
        store: Store,
        worker: str = "worker_0",
        format: str = "v2",
        *,
        flush_seconds: float | None = None,
        max_bytes: float = float("inf"),
        reopen: bool = False,
        on_published: Callable[[set[int], int], None] = lambda steps, nbytes: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.steps = self.segments = self.bytes = 0
        self._store = store
        self._worker = worker
        self._format = format
        self._builder = _new_builder(store, worker, format)
        self._flush_seconds = flush_seconds
        self._max_bytes = min(max_bytes, SEGMENT_BYTES_REMOTE if store.remote else SEGMENT_BYTES)
        self._reopen = reopen
        self._on_published = on_published
        self._clock = clock
        self._started = clock()
        self._collections = ""
        self._last_published: int | None = None
        self._open: list[StepBatch] = []
        self._open_bytes = 0
        self._releases: list[Callable[[], None]] = []
        self._forget_finished()

    def _forget_finished(self) -> None:
        self._finished: set[int] = set()
        self._finished_bytes = 0
        self._finished_at: float | None = None

    def add(self, batch: StepBatch | PendingBatch, finish: bool = False) -> int:
        """Take tensors of a step. A batch of another step finishes the one before.

        Args:
            batch: the tensors; a pending batch is made here, and its memory is released when the
                step has been published or discarded.
            finish: the step is complete with them.

        Returns:
            How many bytes the batch takes until it is published.
        """
        if isinstance(batch, PendingBatch):
            self._releases.append(batch.release)
            batch = batch.make()
        if self._open and self._open[0].step != batch.step:
            self.finish_step()
        nbytes = batch.nbytes
        self._open.append(batch)
        self._open_bytes += nbytes
        if finish:
            self.finish_step()
        return nbytes

    def finish_step(self) -> None:
        """Mark the open step, if there is one, as complete."""
        if not self._open:
            return
        for batch in self._open:
            self._builder.add(batch)
        self._finished.add(self._open[0].step)
        self._finished_bytes += self._open_bytes
        self._open, self._open_bytes = [], 0
        if self._finished_at is None:
            self._finished_at = self._clock()

    @property
    def deadline(self) -> float | None:
        """When the finished steps are to be published, on the clock; None without any."""
        if self._finished_at is None:
            return None
        age = self._clock() - self._started
        return self._finished_at + flush_interval(age, self._store.remote, self._flush_seconds)

    def flush_if_due(self) -> None:
        """Publish the finished steps if they are old or large enough.

        Format v1 has two files per step whenever it is published, so nothing is gained by waiting.
        """
        deadline = self.deadline
        due = deadline is not None and (self._format == "v1" or self._clock() >= deadline)
        if due or self._builder.waiting >= self._max_bytes:
            self.flush()

    def flush(self) -> None:
        """Publish every finished step."""
        if not self._finished:
            return
        self._recover_removed_run()
        if self._reopen:
            # Before anything new is visible: a reader that sees new steps waits for more.
            self._store.delete(END_KEY)
            self._reopen = False
        self._builder.publish()
        steps, nbytes = self._finished, self._finished_bytes
        self._forget_finished()
        if not self._open:
            self._release()
        self.segments += 1
        self.steps += len(steps)
        self.bytes = self._builder.written
        self._last_published = max(steps)
        self._on_published(steps - {batch.step for batch in self._open}, nbytes)

    def write_collections(self, text: str) -> None:
        """Write this worker's collections file, replacing the one before."""
        self._collections = text
        if not self._recover_removed_run():
            self._write_collections()

    def close(self, end: bool = True, interrupted: bool = False) -> None:
        """Publish everything, compact the index and write the end marker.

        Args:
            end: write the marker.
            interrupted: mark the run as interrupted.
        """
        self.finish_step()
        self.flush()
        try:
            self._builder.close()
        except Exception:
            # Every step is published; a run of many small index files is only slower to open.
            logger.warning("Cannot compact the index in %s", self._store.url, exc_info=True)
        if end:
            marker = EndMarker.now(self._format, interrupted)
            self._store.write(END_KEY, [marker.encode()])

    def discard(self) -> None:
        """Drop everything that is not published."""
        self._builder.discard()
        self._open, self._open_bytes = [], 0
        self._forget_finished()
        self._release()

    def _release(self) -> None:
        releases, self._releases = self._releases, []
        for release in releases:
            release()

    def _write_collections(self) -> None:
        key = collections_key(self._worker, v1=self._format == "v1")
        data = encode_collections(self._collections, self._worker, self._builder.run_id.make())
        self._store.write(key, [data])

    def _recover_removed_run(self) -> bool:
        """Start again in an empty directory if the run was removed; return whether it was.

        Not checked in a bucket, where it would cost a request.
        """
        gone = self._last_published is not None and not self._store.remote
        if not gone or self._store.exists():
            return False
        if self._collections:
            self._write_collections()
        logger.warning(
            "%s was removed during the job. The steps up to %d are lost; later steps are saved "
            "there again.", self._store.url, self._last_published,
        )  # fmt: skip
        self._last_published = None
        return True
