"""Bounded queue between the training thread and the writer thread.

All locking and waiting of a writer is in this module. The training thread appends and continues;
when too many bytes are unpublished it waits, and the time is counted. A failure of the writer
thread is kept and raised by the next call, and no call waits for a thread that is gone.

Every hand-over is one append to a deque, so Ctrl-C leaves it either in the queue or not. Counters
change around the append in the order that underestimates: then a producer waits too little rather
than forever.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from smdebug.exceptions import SMDebugRuntimeError, StoreError, WriteFailed
from smdebug.storage.batch import PendingBatch, StepBatch

if TYPE_CHECKING:
    from collections.abc import Callable

# Waking a thread costs the thread that wakes it about 20 us: small items wait until the writer
# thread wakes by itself, which it does at this interval while there is something to do.
_NAP_SECONDS = 0.05
_WAKING_BYTES = 1 << 20
# Waiting producers check this often that the writer thread is alive: a thread that ended with
# the interpreter notifies no one.
_ALIVE_CHECK_SECONDS = 1.0


class Handover(NamedTuple):
    """Tensors of a step, the end of the open step, or both."""

    batch: StepBatch | PendingBatch | None
    nbytes: int
    finish: bool


@dataclass(eq=False)
class Command:
    """Work other than tensors, for the writer thread."""

    run: Callable[[], None]
    done: bool = False


class WriterQueue:
    """Bounded queue of one producer side and one consumer thread.

    Args:
        url: where the run is, for error messages.
        max_bytes: how many bytes may be unpublished, in the queue and with the consumer; one step
            may exceed it alone.

    Attributes:
        consumer_alive: whether the consumer can still take items; set by the consumer.
        producers_waiting: how many threads wait for room.
        seconds_waited: how long producers have waited for room in total.
    """

    def __init__(self, url: str, max_bytes: int) -> None:
        self.consumer_alive: Callable[[], bool] = lambda: True
        self.producers_waiting = 0
        self.seconds_waited = 0.0
        self._url = url
        self._max_bytes = max_bytes
        # One lock guards everything below. It is re-entrant on purpose: Ctrl-C inside
        # Condition.__enter__ can leave it locked, and wait() releases all levels.
        self._changed = threading.Condition()
        self._items: deque[Handover | Command] = deque()
        self._queued_bytes = 0
        # Bytes and steps that were put and are not published.
        self._unpublished_bytes = 0
        self._unpublished_steps: set[int] = set()
        # The step that is being put, whose bytes only its own end can free.
        self._open_step: int | None = None
        self._open_bytes = 0
        self._consumer_sleeps = False
        self._failure: WriteFailed | None = None
        self._failure_reported = False
        self._closed = False
        self._last_command: Command | None = None

    # ---- producers

    def put(self, batch: StepBatch | PendingBatch, finish: bool = False) -> None:
        """Append tensors of a step; wait while too many bytes are unpublished.

        Args:
            batch: the tensors.
            finish: the step is complete with them.

        Raises:
            WriteFailed: something put earlier could not be written.
            SMDebugRuntimeError: the queue is closed.
        """
        nbytes = batch.nbytes
        with self._changed:
            self._require_usable()
            if batch.step != self._open_step:
                self._open_step, self._open_bytes = batch.step, 0
            if self._is_full(nbytes):
                self._wait_for_room(nbytes)
                self._require_usable()
            self._unpublished_steps.add(batch.step)
            self._append(Handover(batch, nbytes, finish))
            if finish:
                self._open_step, self._open_bytes = None, 0
            else:
                self._open_bytes += nbytes
            self._unpublished_bytes += nbytes

    def finish_step(self) -> None:
        """Mark the open step as complete. Raises as `put` does."""
        with self._changed:
            self._require_usable()
            self._open_step, self._open_bytes = None, 0
            self._append(Handover(None, 0, finish=True))

    def send(self, command: Command) -> None:
        """Append a command without waiting for it. Raises as `put` does."""
        with self._changed:
            self._require_usable()
            self._append(command)

    def execute(self, command: Command) -> None:
        """Append a command and wait until it has run. Raises as `put` does."""
        with self._changed:
            self._require_usable()
            self._append(command)
            self._wait_for(command)
            self._raise_failure()

    def close(self, command: Command) -> None:
        """Append the last command and wait until it has run, also after a failure.

        Called again, by another thread or after Ctrl-C, it waits for the first command.
        """
        with self._changed:
            self._closed = True
            if self._last_command is None:
                self._last_command = command
            if not self._last_command.done:
                # Appended again after Ctrl-C, which may have come before the first append.
                self._append(self._last_command)
                self._wait_for(self._last_command)

    def raise_failure_once(self) -> None:
        """Raise the failure unless this method has already done so."""
        with self._changed:
            if not self._failure_reported:
                self._failure_reported = True
                self._raise_failure()

    @property
    def lost_steps(self) -> tuple[int, ...]:
        """The steps that were put and will not be published; () without a failure."""
        with self._changed:
            return () if self._failure is None else tuple(sorted(self._unpublished_steps))

    def _append(self, item: Handover | Command) -> None:
        self._items.append(item)
        if isinstance(item, Handover):
            self._queued_bytes += item.nbytes
        if self._consumer_sleeps or self._queued_bytes >= _WAKING_BYTES or self.producers_waiting:
            self._changed.notify_all()

    def _is_full(self, nbytes: int) -> bool:
        only_open_step = self._unpublished_bytes <= self._open_bytes
        return not only_open_step and self._unpublished_bytes + nbytes > self._max_bytes

    def _wait_for_room(self, nbytes: int) -> None:
        started = time.monotonic()
        if not self._open_bytes:
            # The step before is complete: as a finished step it can be published.
            self._append(Handover(None, 0, finish=True))
        self.producers_waiting += 1
        self._changed.notify_all()
        try:
            while self._is_full(nbytes):
                self._changed.wait(_ALIVE_CHECK_SECONDS)
                self._check_consumer()
                self._raise_failure()
        finally:
            self.producers_waiting -= 1
            self.seconds_waited += time.monotonic() - started

    def _wait_for(self, command: Command) -> None:
        self._changed.notify_all()
        while not command.done and self._check_consumer():
            self._changed.wait(_ALIVE_CHECK_SECONDS)

    def _check_consumer(self) -> bool:
        alive = self.consumer_alive()
        if not alive and self._failure is None:
            self._failure = WriteFailed("the writer thread died; the steps it held are not written")
        return alive

    def _require_usable(self) -> None:
        self._raise_failure()
        if self._closed:
            raise SMDebugRuntimeError(f"the run in {self._url} is closed; nothing was saved")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            lost = tuple(sorted(self._unpublished_steps))
            raise WriteFailed(str(self._failure), lost) from self._failure.__cause__

    # ---- the consumer

    @property
    def failed(self) -> bool:
        """Whether there was a failure: then nothing more is to be written."""
        return self._failure is not None

    def get(self, deadline: float | None) -> Handover | Command | None:
        """Take the next item.

        Args:
            deadline: until when the consumer's finished steps may wait, on the clock of
                `time.monotonic`; None when it has none.

        Returns:
            The item; None when finished steps are to be published now, because the deadline has
            passed or because a producer waits for room.
        """
        with self._changed:
            nap: float | None = _NAP_SECONDS
            while not self._items:
                timeout = nap
                if deadline is not None:
                    remaining = deadline - time.monotonic()
                    if remaining <= 0 or self.producers_waiting:
                        return None
                    timeout = min(remaining, nap or threading.TIMEOUT_MAX)
                self._consumer_sleeps = nap is None
                self._changed.wait(timeout)
                self._consumer_sleeps = False
                # Nothing was put during a nap: sleep until a producer notifies.
                nap = None
            item = self._items.popleft()
            if isinstance(item, Handover):
                # An empty queue has no bytes, whatever Ctrl-C kept from being counted.
                self._queued_bytes = self._queued_bytes - item.nbytes if self._items else 0
            return item

    def done(self, item: Handover | Command | None) -> bool:
        """Record that an item was handled; return whether it was the last command."""
        with self._changed:
            is_last = item is not None and item is self._last_command
            if is_last:
                self._items.clear()  # the same command, appended again
            if isinstance(item, Command):
                item.done = True
            self._changed.notify_all()
            return is_last

    def shrink(self, step: int, nbytes: int) -> None:
        """Record that the consumer freed bytes of a step before publishing it."""
        with self._changed:
            if step == self._open_step:
                self._open_bytes = max(self._open_bytes - nbytes, 0)
            self._free(nbytes)

    def published(self, steps: set[int], nbytes: int) -> None:
        """Record that the consumer published steps and holds their bytes no more."""
        with self._changed:
            still_queued = {
                item.batch.step
                for item in self._items
                if isinstance(item, Handover) and item.batch is not None
            }
            # A new set: one that shrinks keeps the memory of its largest size.
            self._unpublished_steps = self._unpublished_steps - (steps - still_queued)
            self._free(nbytes)

    def _free(self, nbytes: int) -> None:
        self._unpublished_bytes = max(self._unpublished_bytes - nbytes, 0)
        self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Keep an error for the next call and drop what was not taken."""
        target = "" if isinstance(error, StoreError) else f" to {self._url}"
        failure = WriteFailed(f"could not write{target}: {error}")
        failure.__cause__ = error
        with self._changed:
            self._failure = failure
            dropped = [item for item in self._items if isinstance(item, Handover)]
            self._items = deque(item for item in self._items if isinstance(item, Command))
            self._queued_bytes = self._unpublished_bytes = self._open_bytes = 0
            self._changed.notify_all()
        for item in dropped:
            if isinstance(item.batch, PendingBatch):
                item.batch.release()
