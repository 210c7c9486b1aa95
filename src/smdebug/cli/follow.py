"""Going on while a job runs: a picture that is drawn anew, or lines as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.live import Live

from smdebug.cli.render.terminal import console, say
from smdebug.trials.opening import POLL_SECONDS, pause
from smdebug.trials.summary import STOPPED, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import RenderableType

    from smdebug.trials.trial import Trial


def changes(trial: Trial) -> Iterator[None]:
    """Yields now and whenever something new was found; ends after the end of the job.

    A job whose process is gone without a word has ended, too.
    """
    seen = None
    while True:
        # Asked before looking: what is found afterwards is then all there is.
        gone = is_gone(trial)
        trial.maybe_refresh()
        if trial.version != seen:
            seen = trial.version
            yield
        if trial.loaded_all_steps or gone:
            break
        pause(POLL_SECONDS)
    if gone:
        say_gone(trial)


def is_gone(trial: Trial) -> bool:
    """Whether the process that wrote a run is gone without a word."""
    return not trial.loaded_all_steps and state_of(trial.store) == STOPPED


def say_gone(trial: Trial) -> None:
    """Says why nothing more is waited for."""
    say(f"the process that wrote {trial.path} is gone, without having ended the run")


def follow(
    trial: Trial, draw: Callable[[int], RenderableType], lines: Callable[[], Iterable[str]]
) -> None:
    """Shows what a job does until it ends.

    Args:
        trial: its run.
        draw: makes the picture for a terminal of so many columns.
        lines: what is new since it was last called, for other programs; without a terminal.
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
