"""What happens when saving fails: one policy, in one place."""

from __future__ import annotations

import logging
import time
import traceback
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import WriteFailed
from smdebug.hook.lost_steps import LostSteps

if TYPE_CHECKING:
    from smdebug.hook.stats import HookStats

logger = logging.getLogger("smdebug.hook")


class ErrorPolicy:
    """Keeps failures of the hook away from training, or hands them to it.

    Args:
        on_error: `"warn"`: the first failure is logged with its traceback and saving stops;
            `"raise"`: it is raised when the next step begins.

    Attributes:
        failed: the first failure; once there is one, nothing is saved any more.
    """

    def __init__(self, on_error: str) -> None:
        self._on_error = on_error
        self.failed: BaseException | None = None
        self._raised = False

    def caught(self, error: Exception) -> None:
        """Takes a failure that happened inside of training's own calls."""
        if self.failed is not None:
            return
        self.failed = error
        if self._on_error == "warn":
            logger.error(
                "saving has stopped, training goes on; %s: %s%s",
                type(error).__name__, error, _lost(error), exc_info=error,
            )  # fmt: skip
            _let_go(error)

    def raise_if_asked(self) -> None:
        """Raises the failure, once, where the user asked for that."""
        if self.failed is not None and self._on_error == "raise" and not self._raised:
            self._raised = True
            raise self.failed


class Entered:
    """A context that counts the time, holds the lock, and gives exceptions to the guard.

    One object may serve many times, one after the other: it is the lock that makes it so.
    """

    __slots__ = ("_began", "_guard", "_lock", "_stats")

    def __init__(self, lock: Any, stats: HookStats, guard: ErrorPolicy) -> None:
        self._lock = lock
        self._stats = stats
        self._guard = guard

    def __enter__(self) -> None:
        self._lock.acquire()
        self._began = time.perf_counter()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self._stats.seconds += time.perf_counter() - self._began
        self._lock.release()
        if isinstance(error, Exception):
            self._guard.caught(error)
            return True
        return False


def _lost(error: BaseException) -> str:
    steps = error.lost_steps if isinstance(error, WriteFailed) else ()
    return f" (lost: {LostSteps(steps)})" if steps else ""


def _let_go(error: BaseException | None) -> None:
    """Lets go of the tensors that were in the hands of those who met an error, which is kept."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
