"""One background thread that turns steps into files.

The training thread hands over batches and goes on. The queue is bounded in bytes: when it is full
the training thread waits, and the time is counted. A failure on the thread is kept and raised by
the next call; nothing ever waits for a thread that has given up.

It has more than 400 lines because both sides of the one lock are in it, to be read together.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING

from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError, StoreError, WriteFailed
from smdebug.storage.batch import PendingBatch, StepBatch
from smdebug.storage.end_marker import EndMarker
from smdebug.storage.format.collections_file import encode_collections
from smdebug.storage.format.keys import END_KEY, collections_key
from smdebug.storage.v1.builder import V1Builder
from smdebug.storage.v2.segment import SegmentBuilder
from smdebug.storage.writer.flush_interval import flush_interval
from smdebug.storage.writer.queue import Builder, PendingSteps, WriterCommand, WriterStats

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Store

logger = logging.getLogger("smdebug.storage")

DEFAULT_QUEUE_BYTES = 512 << 20
# A segment is published when this much is waiting, however young it is. Publishing takes some
# milliseconds beside the bytes; a remote object goes out in one put, from one buffer.
SEGMENT_BYTES, SEGMENT_BYTES_REMOTE = 256 << 20, 64 << 20
_LOOK_UP_SECONDS = 1.0
# Waking a thread costs the one that wakes it some 20 microseconds: what is small waits until the
# writer looks by itself, which it does this often while there is something to do.
_NAP_SECONDS = 0.05
_WAKING_BYTES = 1 << 20
# How a run is closed.
_ENDED, _INTERRUPTED = "ended", "interrupted"
_THREAD_DIED = "the writer's thread is gone; what waited for it was not written"


def _check_number(name: str, value: float, minimum: float) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or math.isnan(value) or value < minimum:
        raise SMDebugValueError(f"{name} must be a number of at least {minimum:g}, got {value!r}")


def _builder(store: Store, worker: str, format: str) -> Builder:
    if format == "v2":
        return SegmentBuilder(store, worker)
    if format == "v1":
        return V1Builder(store, worker)
    raise SMDebugValueError(f"format must be 'v1' or 'v2', got {format!r}")


class RunWriter:
    """Writes the run of one worker into a store.

    Args:
        store: where the run is kept.
        worker: the name of this worker.
        format: "v2", or "v1" for files that smdebug 1.0 reads.
        flush_seconds: how long a finished step may wait to be published. None lets it grow with
            the age of the run, see `flush_interval`.
        queue_bytes: how much may wait to be published, in the queue and with the thread; one step
            may exceed it alone.
        reopen: the run may be a finished one that is gone on with: its mark of the end is removed
            when a step is published.

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
            _check_number("flush_seconds", flush_seconds, minimum=0.0)
        _check_number("queue_bytes", queue_bytes, minimum=0)
        collections_key(worker)  # a name that makes no file name is refused here, not later
        self.store = store
        self.worker = worker
        self.format = format
        self.stats = WriterStats()
        self._builder = _builder(store, worker, format)
        self._reopens = reopen
        self._flush_seconds = flush_seconds
        self._queue_bytes = queue_bytes
        self._started = time.monotonic()
        self._process = os.getpid()
        # One lock guards everything below; waiters on either side are woken through it.
        self._changed = threading.Condition()
        self._queue: deque[StepBatch | PendingBatch | WriterCommand] = deque()
        # Bytes that were submitted and are not published; those of the step that is still open,
        # which nothing but its end sets free; and how many threads wait for room.
        self._queued = self._open_bytes = self._waiting = 0
        self._open_step: int | None = None
        # Bytes in the queue, and whether the thread sleeps until it is woken.
        self._untaken = 0
        self._asleep = False
        self._failure: WriteFailed | None = None
        self._unpublished: set[int] = set()
        # For a directory that is removed meanwhile: the thread's own.
        self._last_published: int | None = None
        self._collections = ""
        self._closed = self._reported = self._running = False
        self._end: WriterCommand | None = None
        self._thread: threading.Thread | None = None

    def submit(self, batch: StepBatch | PendingBatch, finish: bool = False) -> None:
        """Hands over tensors of a step; waits while too much is unpublished.

        The step counts as finished when a batch of another step arrives, on `finish_step`, and on
        `close`. No reader ever sees an unfinished step.

        Args:
            batch: the tensors.
            finish: the step is complete with them, as `finish_step` says.

        Raises:
            WriteFailed: an earlier batch could not be written.
        """
        size = batch.nbytes
        self._require_own_process()
        with self._changed:
            self._raise_failure()
            self._require_open()
            if batch.step != self._open_step:
                self._open_step, self._open_bytes = batch.step, 0
            if self._no_room(size):
                self._wait_for_room(size)
                self._require_open()
            self._unpublished.add(batch.step)
            self._put(batch)
            # Afterwards: where Ctrl-C comes between, too little is counted, and nobody waits.
            self._queued += size
            self._open_bytes += size
            if finish:
                self._finish()

    def finish_step(self) -> None:
        """Says that the step handed over last is complete, so that it may be published."""
        self._require_own_process()
        with self._changed:
            self._raise_failure()
            self._require_open()
            self._finish()

    def _finish(self) -> None:
        self._open_step, self._open_bytes = None, 0
        self._put(WriterCommand("finish"))

    def write_collections(self, text: str) -> None:
        """Writes this worker's collections file, replacing an earlier one."""
        self._require_own_process()
        with self._changed:
            self._raise_failure()
            self._require_open()
            self._put(WriterCommand("collections", text))

    def flush(self) -> None:
        """Publishes every finished step and returns when it is readable.

        Raises:
            WriteFailed: something could not be written.
        """
        self._require_own_process()
        with self._changed:
            self._raise_failure()
            self._require_open()
            self._obey(WriterCommand("flush"))
            self._raise_failure()

    def close(self, end: bool = True, interrupted: bool = False) -> None:
        """Publishes everything, compacts the index and marks the run as finished.

        Args:
            end: write the marker that tells readers there is no more to come.
            interrupted: have it say that somebody stopped the job.

        Raises:
            WriteFailed: something could not be written; `lost_steps` says what.
        """
        if os.getpid() != self._process:
            return
        with self._changed:
            self._closed = True
            if self._end is None:
                how = _INTERRUPTED if interrupted else _ENDED
                self._end = WriterCommand("close", how if end else "")
            if not self._end.done:
                # Also after a failure: the order is what ends the thread. Given twice, by a second
                # call or after Ctrl-C, it is obeyed once.
                self._obey(self._end)
        if self._thread is not None:
            self._thread.join()
        with self._changed:
            if not self._reported:
                self._reported = True
                self._raise_failure()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        try:
            self.close()
        except WriteFailed:
            if kind is None:
                raise
            # The script's own exception is the one to show.
            logger.exception("the run in %s is not complete", self.store.url)

    @property
    def lost_steps(self) -> tuple[int, ...]:
        """The steps that were handed over and will not be published; () while all is well."""
        with self._changed:
            return () if self._failure is None else tuple(sorted(self._unpublished))

    # ---- the training thread's side; called with the lock held

    def _put(self, item: StepBatch | PendingBatch | WriterCommand) -> None:
        # One that Ctrl-C kept from starting has no number.
        if (self._thread is None or self._thread.ident is None) and self._failure is None:
            self._start()
        self._queue.append(item)
        if not isinstance(item, WriterCommand):
            self._untaken += item.nbytes
        if self._asleep or self._untaken >= _WAKING_BYTES or self._waiting:
            self._changed.notify_all()

    def _start(self) -> None:
        # A daemon: a script that dies without close() must not hang at exit.
        self._thread = threading.Thread(target=self._run, name="smdebug-writer", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            self._failure = WriteFailed(f"could not start the thread that writes: {error}")
            self._raise_failure()

    def _no_room(self, size: int) -> bool:
        return self._queued > self._open_bytes and self._queued + size > self._queue_bytes

    def _wait_for_room(self, size: int) -> None:
        began = time.monotonic()
        if not self._open_bytes:
            # The step before is complete, and only complete ones can be published.
            self._put(WriterCommand("finish"))
        self._waiting += 1
        self._changed.notify_all()
        try:
            while self._no_room(size):
                self._wait()
                self._lives()
                self._raise_failure()
        finally:
            self._waiting -= 1
            self.stats.seconds_waited += time.monotonic() - began

    def _obey(self, order: WriterCommand) -> None:
        """Has the thread do something and waits for it."""
        self._put(order)
        self._changed.notify_all()
        while not order.done and self._lives():
            self._wait()

    def _wait(self) -> None:
        # Looks up now and then: a thread that was killed with the interpreter wakes nobody.
        self._changed.wait(_LOOK_UP_SECONDS)

    def _lives(self) -> bool:
        """Whether the thread is there; it may be gone whatever it was doing."""
        alive = self._thread is not None and self._thread.is_alive()
        if not alive and self._failure is None:
            self._failure = WriteFailed(_THREAD_DIED)
        return alive

    def _raise_failure(self) -> None:
        if self._failure is not None:
            lost = tuple(sorted(self._unpublished))
            raise WriteFailed(str(self._failure), lost) from self._failure.__cause__

    def _require_own_process(self) -> None:
        # Before the lock is touched: a fork may have copied it locked.
        if os.getpid() != self._process:
            raise SMDebugRuntimeError("a forked process must not write to the run of its parent")

    def _require_open(self) -> None:
        if self._closed:
            raise SMDebugRuntimeError(f"the run in {self.store.url} is closed; nothing was saved")

    # ---- the background thread's side

    def _run(self) -> None:
        with self._changed:
            # Ctrl-C while the thread was being started: there may be two, and one is enough.
            if self._running:
                return
            self._running = True
            self._thread = threading.current_thread()
        work = PendingSteps(self._builder)
        while True:
            item = self._next(work)
            try:
                if self._failure is None:
                    self._handle(item, work)
            except BaseException as error:
                # The one place where everything is caught, a panic of a native library included:
                # the error is kept for the next call.
                self._fail(error, work)
            with self._changed:
                ended = item is not None and item is self._end
                if ended:
                    # The same order, given once more.
                    self._queue.clear()
                if isinstance(item, WriterCommand):
                    item.done = True
                self._changed.notify_all()
            if ended:
                return
            # Not kept while there is nothing to do: a step may be large.
            del item

    def _next(self, work: PendingSteps) -> StepBatch | PendingBatch | WriterCommand | None:
        """The next item, or None when something has waited long enough to be published."""
        with self._changed:
            patience: float | None = _NAP_SECONDS
            while not self._queue:
                if self._waiting and work.finished and self._failure is None:
                    return None
                timeout = patience
                if work.finished_at is not None and self._failure is None:
                    due = work.finished_at + self._interval() - time.monotonic()
                    if due <= 0:
                        return None
                    timeout = min(due, patience or threading.TIMEOUT_MAX)
                self._asleep = patience is None
                self._changed.wait(timeout)
                self._asleep = False
                # Nothing came during a nap: sleep until there is something.
                patience = None
            item = self._queue.popleft()
            if not isinstance(item, WriterCommand):
                self._untaken -= item.nbytes
            return item

    def _handle(
        self, item: StepBatch | PendingBatch | WriterCommand | None, work: PendingSteps
    ) -> None:
        if isinstance(item, PendingBatch):
            work.hold(item.release)
            batch = item.make()
            work.take(batch, batch.nbytes)
            # Copies that were only reduced are gone by now.
            self._make_room(item.nbytes - batch.nbytes, item.step)
        elif isinstance(item, StepBatch):
            work.take(item, item.nbytes)
        elif item is None or item.what == "flush":
            self._publish(work)
        elif item.what == "finish":
            work.finish()
        elif item.what == "collections":
            self._collections = item.text
            if self._is_gone():
                self._begin_anew()
            else:
                self._write_collections()
        elif item.what == "close":
            work.finish()
            self._publish(work)
            self._compact()
            if item.text:
                mark = EndMarker.now(self.format, item.text == _INTERRUPTED)
                self.store.write(END_KEY, [mark.encode()])
        overdue = work.finished_at is not None and (
            self.format == "v1" or time.monotonic() - work.finished_at >= self._interval()
        )
        most = SEGMENT_BYTES_REMOTE if self.store.remote else SEGMENT_BYTES
        # A quarter: while one segment is being published the next ones can gather.
        if overdue or self._builder.waiting >= min(most, self._queue_bytes // 4):
            self._publish(work)

    def _publish(self, work: PendingSteps) -> None:
        steps = work.finished
        if not steps:
            return
        if self._is_gone():
            self._begin_anew()
        if self._reopens:
            # Before there is anything new: who sees that waits for more.
            self.store.delete(END_KEY)
            self._reopens = False
        self._builder.publish()
        self.stats.segments += 1
        self.stats.steps += len(steps)
        self.stats.bytes = self._builder.written
        self._last_published = max(steps)
        weight = work.weight
        work.published()
        with self._changed:
            self._unpublished = self._unpublished - (steps - work.open_steps)  # -= stays large
        self._make_room(weight)

    def _write_collections(self) -> None:
        key = collections_key(self.worker, classic=self.format == "v1")
        data = encode_collections(self._collections, self.worker, self._builder.identity.make())
        self.store.write(key, [data])

    def _is_gone(self) -> bool:
        """Whether what was published is there no more; of a bucket it would cost a request."""
        published = self._last_published is not None
        return published and not self.store.remote and not self.store.exists()

    def _begin_anew(self) -> None:
        """Says what is gone with a directory, once it is known that there can be a new one."""
        if self._collections:
            self._write_collections()
        logger.warning(
            "%s was removed while a job saves to it: what was published before is gone, all steps "
            "up to %d; those to come are saved there", self.store.url, self._last_published,
        )  # fmt: skip
        self._last_published = None

    def _make_room(self, weight: int, step: int | None = None) -> None:
        with self._changed:
            self._queued = max(self._queued - weight, 0)
            if step is not None and step == self._open_step:
                self._open_bytes = max(self._open_bytes - weight, 0)
            self._changed.notify_all()

    def _compact(self) -> None:
        try:
            self._builder.close()
        except Exception:
            # Every step is published already; a run of many small index files is only slower.
            logger.warning("the index in %s stays as it is", self.store.url, exc_info=True)

    def _interval(self) -> float:
        age = time.monotonic() - self._started
        return flush_interval(age, self.store.remote, self._flush_seconds)

    def _fail(self, error: BaseException, work: PendingSteps) -> None:
        self._builder.discard()
        work.give_up()
        # The error is kept, and with it whatever tensors were in the hands of who met it.
        traceback.clear_frames(error.__traceback__)
        with self._changed:
            where = "" if isinstance(error, StoreError) else f" to {self.store.url}"
            failure = WriteFailed(f"could not write{where}: {error}")
            failure.__cause__ = error
            self._failure = failure
            dropped = list(self._queue)
            self._queue = deque(item for item in self._queue if isinstance(item, WriterCommand))
            self._queued = self._open_bytes = self._untaken = 0
            self._changed.notify_all()
        for batch in dropped:
            if isinstance(batch, PendingBatch):
                batch.release()
