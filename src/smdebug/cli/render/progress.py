"""A progress bar on the terminal for slow commands."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress

if TYPE_CHECKING:
    from types import TracebackType

# Faster commands show no bar.
_DELAY_SECONDS = 1.0


class Bar:
    """A progress bar that appears on a terminal after a second, and is erased at the end.

    Until the total is known it shows only that work is going on.

    Args:
        unit: what is counted: steps, files, runs.
        timer: whether it appears without a call of `update`. A command that follows a job sets it
            to False: waiting is not progress.

    Example:
        >>> with Bar() as progress:
        ...     progress.update(1, 2)
    """

    def __init__(self, unit: str = "steps", timer: bool = True) -> None:
        self._console = Console(stderr=True)
        # Output is redirected above the bar only if it goes to the same terminal.
        same = sys.stdout.isatty()
        self._bar = Progress(console=self._console, transient=True, redirect_stdout=same)
        self._task = self._bar.add_task(unit, total=None)
        self._start_time = time.monotonic()
        self._lock = threading.Lock()
        self._shown = self._finished = False
        self._timer = threading.Timer(_DELAY_SECONDS, self._show) if timer else None

    def update(self, done: int, total: int) -> None:
        """Show how many of how many are done."""
        self._bar.update(self._task, completed=done, total=total)
        if time.monotonic() - self._start_time > _DELAY_SECONDS:
            self._show()

    def _show(self) -> None:
        with self._lock:
            if not self._shown and not self._finished and self._console.is_terminal:
                self._shown = True
                self._bar.start()

    def __enter__(self) -> Bar:
        if self._timer is not None:
            if _DELAY_SECONDS <= 0:
                self._show()
            elif self._console.is_terminal:
                self._timer.daemon = True
                self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._finished = True
            if self._shown:
                self._bar.stop()
