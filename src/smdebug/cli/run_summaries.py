"""Find and summarize the runs below a directory or URL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from smdebug.cli.open_run import nearest_paths
from smdebug.cli.render.progress import Bar
from smdebug.cli.render.terminal import print_message
from smdebug.exceptions import SMDebugValueError
from smdebug.trials.run_discovery import FoundRun, find_runs
from smdebug.trials.run_summary import RunSummary, summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Concurrent requests to an object store.
_THREADS = 16
# Sort keys: the path ascending, all others descending.
_KEYS: dict[str, Callable[[RunSummary], Any]] = {
    "path": lambda run: 0,
    "time": lambda run: -run.modified,
    "size": lambda run: -run.size,
    "steps": lambda run: -run.steps,
    "findings": lambda run: -sum(run.findings.values()),
}


def summarize_runs(location: str, order: str) -> list[RunSummary]:
    """Return summaries of the runs below a location, sorted.

    Args:
        location: a directory or a URL.
        order: `path`, `time`, `size`, `steps` or `findings`.
    """
    summaries = sorted(_summaries(location), key=lambda run: run.path)
    return sorted(summaries, key=_KEYS[order])


def _summaries(location: str) -> list[RunSummary]:
    unreadable: list[str] = []
    with Bar("runs") as progress:
        try:
            found = list(find_runs(location, unreadable.append))
        except SMDebugValueError as error:
            similar = nearest_paths(location)
            hint = f"; did you mean {' or '.join(similar)}?" if similar else ""
            raise SMDebugValueError(f"{error}{hint}") from error
        for folder in unreadable:
            print_message(f"skipping {folder}: it cannot be read")
        summaries = []
        for run in _summarize(found):
            summaries.append(run)
            progress.update(len(summaries), len(found))
    return summaries


def _summarize(found: list[FoundRun]) -> Iterator[RunSummary]:
    """Yield the summary of each run; those in an object store are read concurrently."""
    if not any(run.store.remote for run in found):
        yield from map(summarize, found)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from pool.map(summarize, found)
