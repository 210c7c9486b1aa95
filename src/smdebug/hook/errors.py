"""What happens when saving fails: one policy, in one place."""

from __future__ import annotations

import logging
import threading
import time
import traceback

from smdebug.exceptions import WriteFailed
from smdebug.hook.run.lost_steps import LostSteps

logger = logging.getLogger("smdebug.hook")


class ErrorPolicy:
    """Keeps failures of the hook away from training, or raises them in it.

    Args:
        on_error: `"warn"`: the first failure is logged with its traceback and saving stops;
            `"raise"`: it is raised when the next step begins.

    Attributes:
        failure: the first failure; once there is one, nothing is saved anymore.
    """

    def __init__(self, on_error: str) -> None:
        self._on_error = on_error
        self.failure: BaseException | None = None
        self._raised = False

    def caught(self, error: Exception) -> None:
        """Take an exception that happened inside training's own calls."""
        if self.failure is not None:
            return
        self.failure = error
        if self._on_error == "warn":
            lost = error.lost_steps if isinstance(error, WriteFailed) else ()
            logger.error(
                "saving has stopped, training continues; %s: %s%s",
                type(error).__name__, error, f" (lost: {LostSteps(lost)})" if lost else "",
                exc_info=error,
            )  # fmt: skip
            _clear_frames(error)

    def raise_pending(self) -> None:
        """Raise the failure, once, with `on_error="raise"`."""
        if self.failure is not None and self._on_error == "raise" and not self._raised:
            self._raised = True
            raise self.failure


class GuardedSection:
    """A context for everything the hook does in the training thread: lock, time, failures.

    One object serves all sections, nested ones included: it is entered with the lock held. The time
    of a nested section counts once.

    Args:
        policy: gets exceptions; `KeyboardInterrupt` and the like are raised as they are.

    Attributes:
        lock: the lock, for what needs only that.
        seconds: the time spent in sections so far.
    """

    def __init__(self, policy: ErrorPolicy) -> None:
        self._policy = policy
        self.seconds = 0.0
        self.lock = threading.RLock()
        self._depth = 0
        self._started = 0.0

    def __enter__(self) -> None:
        self.lock.acquire()
        if not self._depth:
            self._started = time.perf_counter()
        self._depth += 1

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self._depth -= 1
        if not self._depth:
            self.seconds += time.perf_counter() - self._started
        self.lock.release()
        if isinstance(error, Exception):
            self._policy.caught(error)
            return True
        return False

    def after_fork(self) -> None:
        """Start over in a child: the thread that held the lock does not exist there."""
        self.lock = threading.RLock()
        self._depth = 0


def _clear_frames(error: BaseException | None) -> None:
    """Drop the local variables of the failed calls: the error is kept, and they hold tensors."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
