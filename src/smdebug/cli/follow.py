"""Follow a running job: a plot that is redrawn, or lines as values arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.live import Live

from smdebug.cli.render.terminal import console, print_message
from smdebug.trials.run_summary import STOPPED, state_of
from smdebug.trials.wait import POLL_SECONDS, pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import RenderableType

    from smdebug.trials.trial import Trial


def changes(trial: Trial) -> Iterator[None]:
    """Yield now and whenever the run has new data, until the job ends.

    A job whose process has exited without closing the run has ended, too.
    """
    seen = None
    while True:
        # Checked before the refresh: whatever the process wrote is then read.
        gone = writer_is_gone(trial)
        trial.maybe_refresh()
        if trial.version != seen:
            seen = trial.version
            yield
        if trial.loaded_all_steps or gone:
            break
        pause(POLL_SECONDS)
    if gone:
        report_gone_writer(trial)


def writer_is_gone(trial: Trial) -> bool:
    """Return whether the process that wrote a run has exited without closing it."""
    return not trial.loaded_all_steps and state_of(trial.store) == STOPPED


def report_gone_writer(trial: Trial) -> None:
    """Print why the command stops waiting."""
    print_message(f"the process that wrote {trial.path} has exited without closing the run")


def follow(
    trial: Trial, draw: Callable[[int], RenderableType], lines: Callable[[], Iterable[str]]
) -> None:
    """Show a run until its job ends.

    Args:
        trial: the run.
        draw: returns the plot for a terminal of this many columns.
        lines: returns the lines that are new since the last call; used without a terminal.
    """
    output = console()
    if not output.is_terminal:
        for _ in changes(trial):
            for line in lines():
                output.file.write(f"{line}\n")
            output.file.flush()
        return
    with Live(console=output, auto_refresh=False, vertical_overflow="ellipsis") as live:
        for _ in changes(trial):
            live.update(draw(output.width), refresh=True)
