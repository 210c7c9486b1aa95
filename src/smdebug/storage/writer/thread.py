"""Writer thread: moves items from the queue to the publisher."""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING

from smdebug.storage.writer.queue import Command

if TYPE_CHECKING:
    from smdebug.storage.writer.publisher import Publisher
    from smdebug.storage.writer.queue import Handover, WriterQueue


class WriterThread:
    """Thread that hands the items of a queue to a publisher until the last command.

    Args:
        queue: where items come from; it learns here whether the thread is alive.
        publisher: what handles them.
    """

    def __init__(self, queue: WriterQueue, publisher: Publisher) -> None:
        self._queue = queue
        self._publisher = publisher
        # More than one after Ctrl-C inside start(), when it is unknown whether a thread will run:
        # the first to get this lock, which is never released, is the writer thread.
        self._threads: list[threading.Thread] = []
        self._first = threading.Lock()
        queue.consumer_alive = self.is_alive

    def start(self) -> None:
        """Start the thread unless it was started; a failure is kept by the queue."""
        if self._threads and self._threads[-1].ident is not None:
            return
        # A daemon: a script that exits without close() must not hang at exit.
        thread = threading.Thread(target=self._run, name="smdebug-writer", daemon=True)
        self._threads.append(thread)
        try:
            thread.start()
        except RuntimeError as error:
            self._threads.remove(thread)
            self._queue.fail(error)

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return any(thread.is_alive() for thread in self._threads)

    def join(self) -> None:
        """Wait for the end of the thread, which the last command brings about."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _run(self) -> None:
        if not self._first.acquire(blocking=False):
            return
        while True:
            item = self._queue.get(self._publisher.deadline)
            try:
                if not self._queue.failed:
                    self._handle(item)
            except BaseException as error:
                # Everything is caught here, the panic of a native library included: the queue
                # raises it from the next call.
                self._publisher.discard()
                # The error is kept; the frames of its traceback would keep tensors alive.
                traceback.clear_frames(error.__traceback__)
                self._queue.fail(error)
            if self._queue.done(item):
                return
            del item  # a step may be large, and the next one may be long in coming

    def _handle(self, item: Handover | Command | None) -> None:
        if item is None:
            self._publisher.flush()
            return
        if isinstance(item, Command):
            item.run()
        elif item.batch is None:
            self._publisher.finish_step()
        else:
            step = item.batch.step
            held = self._publisher.add(item.batch, item.finish)
            # A pending batch can be much smaller once it is made: copies were only reduced.
            self._queue.shrink(step, item.nbytes - held)
        self._publisher.flush_if_due()
