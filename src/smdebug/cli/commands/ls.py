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

from smdebug.cli.open_run import nearest_paths
from smdebug.cli.options import AsJson, help_text
from smdebug.cli.render.numbers import ago, byte_size
from smdebug.cli.render.progress import Bar
from smdebug.cli.render.terminal import console, harmless, print_json, say
from smdebug.exceptions import SMDebugValueError
from smdebug.trials.finding import FoundRun, find_runs
from smdebug.trials.summary import DAMAGED, FINISHED, LIVE, STOPPED, RunSummary, summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Requests under way at once, where each is a round trip.
_THREADS = 16
_GAP = 2
# Columns whose cells may take several lines, and how wide they are then at the least.
_FOLDED = {"run": 14, "findings": 29}
# What is left out where a terminal is too narrow, the first of these first.
_SPARED = ("written", "last", "tensors", "size", "steps", "findings", "state")
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
        _show(summaries)
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


def _show(summaries: list[RunSummary]) -> None:
    out = console()
    columns = _columns(summaries)
    room = out.width
    if not out.is_terminal:
        # What other programs read is as wide as it is.
        room = sum(_widths(columns, None).values())
        out = console(room)
    while sum(_widths(columns, 0).values()) > room and any(map(columns.get, _SPARED)):
        del columns[next(name for name in _SPARED if name in columns)]
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _GAP, 0, 0))
    for name, width in _widths(columns, room).items():
        right = name in ("steps", "last", "tensors", "size")
        table.add_column(
            name, width=width - _GAP, overflow="fold", justify="right" if right else "left"
        )
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    out.print(table)


def _columns(summaries: list[RunSummary]) -> dict[str, list[Text]]:
    """The cells of the table, by the names of its columns."""
    now = time.time()
    whole = [run.state != DAMAGED for run in summaries]

    def counted(values: list[int | None]) -> list[Text]:
        pairs = zip(values, whole, strict=True)
        return [Text("" if value is None or not fine else str(value)) for value, fine in pairs]

    return {
        "run": [Text(harmless(run.path)) for run in summaries],
        "steps": counted([run.steps for run in summaries]),
        "last": counted([run.last_step for run in summaries]),
        "tensors": counted([run.tensors for run in summaries]),
        "size": [Text(byte_size(run.size)) for run in summaries],
        "state": [Text(run.state, _STYLES[run.state]) for run in summaries],
        "written": [Text(ago(now - run.modified) if run.modified else "") for run in summaries],
        "findings": [
            _findings(run) if fine else Text(harmless(run.problem or ""), "red")
            for run, fine in zip(summaries, whole, strict=True)
        ],
    }


def _widths(columns: dict[str, list[Text]], room: int | None) -> dict[str, int]:
    """How wide columns are, with the gap behind them.

    Args:
        columns: their cells.
        room: how wide all of them may be, if they can; None when that does not matter.
    """
    whole = {name: max(len(name), *map(len, cells)) + _GAP for name, cells in columns.items()}
    if room is None:
        return whole
    widths = {name: min(width, _FOLDED.get(name, width)) for name, width in whole.items()}
    for name in (each for each in _FOLDED if each in widths):
        spare = max(room - sum(widths.values()), 0)
        widths[name] = min(whole[name], widths[name] + spare)
    return widths


def _findings(run: RunSummary) -> Text:
    if not run.findings:
        return Text("")
    return Text(
        f"{sum(run.findings.values())}: {harmless(', '.join(run.findings))}", "bright_yellow"
    )
