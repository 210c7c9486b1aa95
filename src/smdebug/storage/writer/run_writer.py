"""Writer of one worker's run: a queue, a publisher, and the thread that connects them."""

from __future__ import annotations

import logging
import math
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError, WriteFailed
from smdebug.storage.format.keys import collections_key
from smdebug.storage.writer.publisher import Publisher
from smdebug.storage.writer.queue import Command, WriterQueue
from smdebug.storage.writer.thread import WriterThread

if TYPE_CHECKING:
    from smdebug.storage.batch import PendingBatch, StepBatch
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.storage")

DEFAULT_QUEUE_BYTES = 512 << 20


@dataclass
class WriterStats:
    """What a writer has published, and how long the training thread has waited for it."""

    steps: int = 0
    segments: int = 0
    bytes: int = 0
    seconds_waited: float = 0.0


class RunWriter:
    """Writes the run of one worker into a store, on a background thread.

    Args:
        store: where the run is.
        worker: the name of this worker.
        format: "v2", or "v1" for files that smdebug 1.0 reads.
        flush_seconds: how long a finished step may wait to be published. None lets it grow with
            the age of the run, see `flush_interval`.
        queue_bytes: how many bytes may wait to be published; one step may exceed it alone.
        reopen: the run may be a finished one that is resumed: its end marker is removed when a
            step is published.

    Example:
        >>> from smdebug.storage.batch import Entry, StepBatch
        >>> from smdebug.storage.stores.memory import MemoryStore
        >>> import numpy as np
        >>> from smdebug.mode_keys import ModeKeys
        >>> with RunWriter(MemoryStore()) as writer:
        ...     entry = Entry("loss", np.float32(0.5))
        ...     writer.submit(StepBatch(0, ModeKeys.TRAIN, 0, [entry]))
    """

    def __init__(
        self,
        store: Store,
        worker: str = "worker_0",
        format: str = "v2",
        flush_seconds: float | None = None,
        queue_bytes: int = DEFAULT_QUEUE_BYTES,
        reopen: bool = False,
    ) -> None:
        if flush_seconds is not None:
            _check_number("flush_seconds", flush_seconds)
        _check_number("queue_bytes", queue_bytes)
        collections_key(worker)  # an invalid worker name raises here, not on the thread
        self.store = store
        self.worker = worker
        self.format = format
        self._process = os.getpid()
        self._queue = WriterQueue(store.url, queue_bytes)
        self._publisher = Publisher(
            store,
            worker,
            format,
            flush_seconds=flush_seconds,
            # A quarter: while one segment is being published the next ones can gather.
            max_bytes=queue_bytes // 4,
            reopen=reopen,
            on_published=self._queue.published,
        )
        self._thread = WriterThread(self._queue, self._publisher)

    def submit(self, batch: StepBatch | PendingBatch, finish: bool = False) -> None:
        """Hand over tensors of a step; wait while too many bytes are unpublished.

        The step is finished when a batch of another step arrives, on `finish_step`, and on
        `close`. No reader ever sees an unfinished step.

        Args:
            batch: the tensors.
            finish: the step is complete with them, as by `finish_step`.

        Raises:
            WriteFailed: an earlier batch could not be written.
        """
        self._prepare()
        self._queue.put(batch, finish)

    def finish_step(self) -> None:
        """Mark the step handed over last as complete, so that it can be published."""
        self._prepare()
        self._queue.finish_step()

    def write_collections(self, text: str) -> None:
        """Write this worker's collections file, replacing the one before."""
        self._prepare()
        self._queue.send(Command(partial(self._publisher.write_collections, text)))

    def flush(self) -> None:
        """Publish every finished step and return when it is readable.

        Raises:
            WriteFailed: something could not be written.
        """
        self._prepare()
        self._queue.execute(Command(self._publisher.flush))

    def close(self, end: bool = True, interrupted: bool = False) -> None:
        """Publish everything, compact the index and mark the run as finished.

        Args:
            end: write the end marker, which tells readers that no more steps will come.
            interrupted: mark the job as interrupted.

        Raises:
            WriteFailed: something could not be written; `lost_steps` tells what.
        """
        if os.getpid() != self._process:
            return
        self._thread.start()
        self._queue.close(Command(partial(self._publisher.close, end, interrupted)))
        self._thread.join()
        self._queue.raise_failure_once()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        try:
            self.close()
        except WriteFailed:
            if kind is None:
                raise
            # The script's own exception is the one to show.
            logger.exception("The run in %s is not complete", self.store.url)

    @property
    def stats(self) -> WriterStats:
        """What was published so far."""
        published = self._publisher
        return WriterStats(
            published.steps, published.segments, published.bytes, self._queue.seconds_waited
        )

    @property
    def lost_steps(self) -> tuple[int, ...]:
        """The steps that were handed over and will not be published; () without a failure."""
        return self._queue.lost_steps

    def _prepare(self) -> None:
        # Before any lock is touched: a fork may have copied it locked.
        if os.getpid() != self._process:
            raise SMDebugRuntimeError("a forked process must not write to the run of its parent")
        self._thread.start()


def _check_number(name: str, value: float) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or math.isnan(value) or value < 0:
        raise SMDebugValueError(f"{name} must be a number of at least 0, got {value!r}")
