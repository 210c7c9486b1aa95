"""The runs below a place, summarised."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from smdebug.cli.open_run import nearest_paths
from smdebug.cli.render.progress import Bar
from smdebug.cli.render.terminal import say
from smdebug.exceptions import SMDebugValueError
from smdebug.trials.finding import FoundRun, find_runs
from smdebug.trials.summary import RunSummary, summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Requests under way at once, where each is a round trip.
_THREADS = 16
# The path ascending, else the largest first.
_KEYS: dict[str, Callable[[RunSummary], Any]] = {
    "path": lambda run: 0,
    "time": lambda run: -run.modified,
    "size": lambda run: -run.size,
    "steps": lambda run: -run.steps,
    "findings": lambda run: -sum(run.findings.values()),
}


def summarise_runs(place: str, order: str) -> list[RunSummary]:
    """The runs below a place, sorted.

    Args:
        place: a directory or a URL.
        order: `path`, `time`, `size`, `steps` or `findings`.
    """
    summaries = sorted(_summaries(place), key=lambda run: run.path)
    return sorted(summaries, key=_KEYS[order])


def _summaries(place: str) -> list[RunSummary]:
    unreadable: list[str] = []
    with Bar("runs") as progress:
        try:
            found = list(find_runs(place, unreadable.append))
        except SMDebugValueError as error:
            meant = nearest_paths(place)
            hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
            raise SMDebugValueError(f"{error}{hint}") from error
        for folder in unreadable:
            say(f"{folder} could not be read and is left out")
        summaries = []
        for run in _each(found):
            summaries.append(run)
            progress.tell(len(summaries), len(found))
    return summaries


def _each(found: list[FoundRun]) -> Iterator[RunSummary]:
    """Summarises runs; those in an object store some at a time."""
    if not any(run.store.remote for run in found):
        yield from map(summarise, found)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from pool.map(summarise, found)
