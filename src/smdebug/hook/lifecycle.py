"""The end of a hook: at `close`, at exit, after a fork, on SIGTERM."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

from smdebug.config import environment
from smdebug.hook.sigterm import SIGTERM_HANDLER

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.hook.pipeline import Pipeline
    from smdebug.storage.stop_requests import StopRequest

logger = logging.getLogger("smdebug.hook")


class Lifecycle:
    """Closes a pipeline once, whichever thread or signal requests it.

    Args:
        pipeline: the pipeline.

    Attributes:
        closed: whether closing has begun: nothing is saved anymore.
        forked: whether this is a child of the process that the hook belongs to.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.closed = self.forked = False
        self._done = False
        # Held meanwhile, so that a second call waits for the first.
        self._lock = threading.RLock()

    @property
    def out_dir(self) -> str:
        """Where the run is, for messages."""
        return self._pipeline.run.out_dir

    def close_at_exit(self) -> None:
        """Have the hook closed when the process ends, and left alone in a forked child."""
        SIGTERM_HANDLER.watch(self)
        atexit.register(self.close)
        _open.add(self)

    def flush(self) -> None:
        """Publish everything saved so far."""
        self._pipeline.flush()

    def close(self, interrupted: bool = False) -> None:
        """Close the hook, wait for the thread that does, or complete what Ctrl-C interrupted.

        Args:
            interrupted: the process is about to end: another thread closes the hook while training
                continues, the model is left as it is, and the end marker says so.
        """
        pipeline = self._pipeline
        if self.forked or self._done:
            return
        # What Ctrl-C leaves undone is done by the next call: every part may be done twice.
        with self._lock:
            if self._done:
                return
            pipeline.end()
            self.closed = True
            if not interrupted:
                with pipeline.guarded.lock:
                    self._attempt(pipeline.adapter.detach)
            self._close_run(interrupted)
            with pipeline.guarded.lock:
                # Adapters cache parameters and memory for steps to come.
                pipeline.invalidate()
            atexit.unregister(self.close)
            SIGTERM_HANDLER.forget(self)
            self._done = True
            self._log_summary()
        pipeline.errors.raise_pending()

    def stop(self, request: StopRequest) -> None:
        """Close the hook and end training."""
        step = self._pipeline.steps.step
        logger.warning("training stops after step %d: %s", step, request.reason)
        self.close()
        self._pipeline.adapter.stop_training(request)

    def _close_run(self, interrupted: bool) -> None:
        """Close the output and the rules, without the pipeline's lock: rules may save something."""
        pipeline = self._pipeline
        output, rules = pipeline.run.last_output, pipeline.rules
        started = time.perf_counter()
        if rules.closes_before_run:
            if output is not None and pipeline.errors.failure is None:
                self._attempt(output.finish_step)
                self._attempt(output.flush)
            self._attempt(rules.close)
        if output is not None:
            # In a SageMaker job the platform says when the job is over.
            end = pipeline.adapter.worker().chief and not environment.in_sagemaker()
            self._attempt(lambda: output.close(end, interrupted))
        if not rules.closes_before_run:
            # Only now is everything there that the rules evaluate.
            self._attempt(rules.close)
        pipeline.guarded.seconds += time.perf_counter() - started

    def _log_summary(self) -> None:
        """Log what was saved and the overhead, and what is missing after a failure."""
        pipeline = self._pipeline
        output, failure = pipeline.run.last_output, pipeline.errors.failure
        if output is not None:
            logger.info("%s: %s", self.out_dir, pipeline.stats())
        if failure is not None:
            lost = pipeline.saved.lost(output)
            logger.warning(
                "the run in %s is not complete (lost: %s): %s", self.out_dir, lost, failure
            )

    def _attempt(self, work: Callable[[], None]) -> None:
        """Do one part; an exception goes to the error policy, and the other parts are done."""
        try:
            work()
        except Exception as error:
            self._pipeline.errors.caught(error)

    def abandon(self) -> None:
        """Answer everything and save nothing, as a hook that was unpickled in another process."""
        self.after_fork()
        self.closed = True

    def after_fork(self) -> None:
        """Leave the run to the parent: the writer thread and the lock are there."""
        self.forked = True
        # The thread that held it does not exist here.
        self._lock = threading.RLock()
        self._pipeline.leave()


# What is registered with the interpreter stays forever: one function for all hooks.
_open: weakref.WeakSet[Lifecycle] = weakref.WeakSet()


def _after_fork() -> None:
    for lifecycle in list(_open):
        lifecycle.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
