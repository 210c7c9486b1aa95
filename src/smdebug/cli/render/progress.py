"""A bar on the terminal for work that takes its time."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress

if TYPE_CHECKING:
    from types import TracebackType

# What takes less is over before a bar says anything.
_PATIENCE = 1.0


class Bar:
    """Shows how much is done, on a terminal, once that takes more than a second.

    Before anybody has told how much there is, it only shows that something is going on. It goes
    with the work: nothing of it stays on the screen.

    Args:
        what: what is counted: steps, files, runs.
        clock: whether it appears by itself. Else only when it is told something: where a job is
            followed, waiting is no work.

    Example:
        >>> with Bar() as progress:
        ...     progress.tell(1, 2)
    """

    def __init__(self, what: str = "steps", clock: bool = True) -> None:
        self._console = Console(stderr=True)
        # What is printed meanwhile goes where it was to go, if that is not the same terminal.
        same = sys.stdout.isatty()
        self._bar = Progress(console=self._console, transient=True, redirect_stdout=same)
        self._task = self._bar.add_task(what, total=None)
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._shown = self._over = False
        self._clock = threading.Timer(_PATIENCE, self._show) if clock else None

    def tell(self, done: int, total: int) -> None:
        """Says how many of how many are done."""
        self._bar.update(self._task, completed=done, total=total)
        if time.monotonic() - self._began > _PATIENCE:
            self._show()

    def _show(self) -> None:
        with self._lock:
            if not self._shown and not self._over and self._console.is_terminal:
                self._shown = True
                self._bar.start()

    def __enter__(self) -> Bar:
        if self._clock is not None:
            if _PATIENCE <= 0:
                self._show()
            elif self._console.is_terminal:
                self._clock.daemon = True
                self._clock.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._clock is not None:
            self._clock.cancel()
        with self._lock:
            self._over = True
            if self._shown:
                self._bar.stop()
