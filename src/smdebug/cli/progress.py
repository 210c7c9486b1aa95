"""A bar on the terminal for work that takes its time."""

from __future__ import annotations

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

    It goes with the work: nothing of it stays on the screen.

    Args:
        what: what is counted: steps, files, runs.

    Example:
        >>> with Bar() as progress:
        ...     progress.tell(1, 2)
    """

    def __init__(self, what: str = "steps") -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(console=self._console, transient=True)
        self._task = self._bar.add_task(what, start=True)
        self._began = time.monotonic()
        self._shown = False

    def tell(self, done: int, total: int) -> None:
        """Says how many of how many are done."""
        self._bar.update(self._task, completed=done, total=total)
        late = time.monotonic() - self._began > _PATIENCE
        if late and not self._shown and self._console.is_terminal:
            self._shown = True
            self._bar.start()

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown:
            self._bar.stop()
