"""`smdebug ls`: the runs below a place, a line for each."""

from __future__ import annotations

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from smdebug.cli.numbers import ago, byte_size
from smdebug.cli.opening import nearest_paths
from smdebug.cli.options import AsJson, help_text
from smdebug.cli.progress import Bar
from smdebug.cli.terminal import console, harmless, print_json, say
from smdebug.exceptions import SMDebugValueError
from smdebug.trials.finding import FoundRun, find_runs
from smdebug.trials.summary import DAMAGED, FINISHED, LIVE, STOPPED, RunSummary, summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Requests under way at once, where each is a round trip.
_THREADS = 16
_STYLES = {FINISHED: "", LIVE: "green", STOPPED: "yellow", DAMAGED: "bold red"}


class Order(str, Enum):
    """What the lines are sorted by: the path ascending, else the largest first."""

    path = "path"
    time = "time"
    size = "size"
    steps = "steps"
    findings = "findings"


_KEYS: dict[Order, Callable[[RunSummary], Any]] = {
    Order.path: lambda run: 0,
    Order.time: lambda run: -run.modified,
    Order.size: lambda run: -run.size,
    Order.steps: lambda run: -run.steps,
    Order.findings: lambda run: -sum(run.findings.values()),
}


def ls(
    place: Annotated[
        str, typer.Argument(help="Where to look: a directory or a URL.", metavar="DIR")
    ] = ".",
    as_json: AsJson = False,
    sort: Annotated[
        Order, typer.Option("--sort", help="The order of the lines; the largest first.")
    ] = Order.path,
) -> None:
    # The help is that below; a docstring here would be shown in its place.
    summaries = sorted(_summaries(place), key=lambda run: run.path)
    summaries.sort(key=_KEYS[sort])
    if as_json:
        print_json([dataclasses.asdict(run) for run in summaries])
    elif summaries:
        console().print(_table(summaries))
    if not summaries:
        say(f"no runs found below {place}")
    damaged = sum(run.state == DAMAGED for run in summaries)
    if damaged:
        say(
            f"{damaged} of {len(summaries)} runs {'is' if damaged == 1 else 'are'} damaged; "
            "smdebug check RUN says what is left"
        )


ls.__doc__ = help_text(
    "Lists the runs below a directory or a URL: steps, tensors, size, whether the job still "
    "writes, and what rules found.",
    "smdebug ls runs",
    "smdebug ls s3://bucket/experiments --sort time",
    "smdebug ls runs --json",
)


def _summaries(place: str) -> list[RunSummary]:
    unreadable: list[str] = []
    try:
        found = list(find_runs(place, unreadable.append))
    except SMDebugValueError as error:
        meant = nearest_paths(place)
        hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
        raise SMDebugValueError(f"{error}{hint}") from error
    for folder in unreadable:
        say(f"{folder} could not be read and is left out")
    with Bar("runs") as progress:
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


def _table(summaries: list[RunSummary]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("run", overflow="fold", min_width=12)
    for name in ("steps", "last", "tensors", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("state", "written"):
        table.add_column(name, no_wrap=True)
    told = any(run.findings or run.problem for run in summaries)
    table.add_column("findings", overflow="fold", min_width=14 if told else None)
    now = time.time()
    for run in summaries:
        broken = run.state == DAMAGED
        counts = [run.steps, "" if run.last_step is None else run.last_step, run.tensors]
        table.add_row(
            Text(harmless(run.path)),
            *(Text("" if broken else str(each)) for each in counts),
            byte_size(run.size),
            Text(run.state, _STYLES[run.state]),
            ago(now - run.modified) if run.modified else "",
            Text(harmless(run.problem or ""), "red") if broken else _findings(run),
        )
    return table


def _findings(run: RunSummary) -> Text:
    if not run.findings:
        return Text("")
    return Text(
        f"{sum(run.findings.values())}: {harmless(', '.join(run.findings))}", "bright_yellow"
    )
