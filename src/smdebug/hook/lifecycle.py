"""The end of a hook: when it is closed, by whom, and in which order."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING

from smdebug.config import environment
from smdebug.hook.errors import Entered
from smdebug.hook.sigterm import SIGTERM_HANDLER

if TYPE_CHECKING:
    from smdebug.hook.base import BaseHook

logger = logging.getLogger("smdebug.hook")


class Closing:
    """The end of one hook, which comes once, whoever asks for it.

    The hook is an argument and not kept: it goes with the last reference to it.

    Attributes:
        done: whether all of it is done.
    """

    def __init__(self) -> None:
        self.done = False
        # Held meanwhile, so that a second call waits for the first.
        self._lock = threading.RLock()

    def close(self, hook: BaseHook, interrupted: bool) -> None:
        """Closes the hook, or waits for whoever does, or completes what Ctrl-C has interrupted.

        Args:
            hook: the hook.
            interrupted: as `BaseHook._close` takes it; the mark of the run's end says so.
        """
        # Whatever Ctrl-C leaves undone is done by the next call: each part may be done twice.
        with self._lock:
            if self.done:
                return
            hook._end_run()
            if not interrupted:
                with hook._lock:
                    hook._attempt(hook._detach)
            self._close_output(hook, interrupted)
            with hook._lock:
                # Adapters keep things there for steps to come.
                hook._plan.forget()
            atexit.unregister(hook._at_exit)
            SIGTERM_HANDLER.forget(hook)
            self.done = True
            self._say(hook)
        hook._guard.raise_if_asked()

    def _close_output(self, hook: BaseHook, interrupted: bool) -> None:
        output, supervisor = hook._last_output, hook._supervisor
        # Not under the hook's lock: training goes on, and rules at work may save something.
        closing = Entered(self._lock, hook._stats, hook._guard)
        if supervisor.closes_before_run:
            with closing:
                if output is not None and hook._guard.failed is None:
                    output.finish_step()
                    output.flush()
            hook._attempt(supervisor.close)
        with closing:
            if output is not None:
                # In a SageMaker job the platform says when the job is over.
                end = hook._worker().chief and not environment.in_sagemaker()
                output.close(end, interrupted)
        if not supervisor.closes_before_run:
            # Only now is everything there that the rules have to look at.
            hook._attempt(supervisor.close)

    def _say(self, hook: BaseHook) -> None:
        """Says what the hook cost, and what is missing."""
        if hook._last_output is not None:
            logger.info("%s: %s", hook.out_dir, hook.stats())
        if hook._guard.failed is not None:
            output = hook._output or hook._last_output
            lost = hook._lost_steps.union(() if output is None else output.lost_steps())
            logger.warning(
                "the run in %s is not complete (lost: %s): %s",
                hook.out_dir, lost, hook._guard.failed,
            )  # fmt: skip


def close_at_exit(hook: BaseHook) -> None:
    """Has a hook closed when the process ends, and left alone in a forked child."""
    SIGTERM_HANDLER.watch(hook, partial(hook._close, interrupted=True))
    atexit.register(hook._at_exit)
    _hooks.add(hook)


# What is registered stays for ever: one function for all hooks, which come and go.
_hooks: weakref.WeakSet[BaseHook] = weakref.WeakSet()


def _after_fork() -> None:
    for hook in list(_hooks):
        hook._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
