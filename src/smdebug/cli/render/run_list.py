"""Runs as a table, a line for each."""

from __future__ import annotations

import time

from rich.table import Table
from rich.text import Text

from smdebug.cli.render.numbers import ago, byte_size
from smdebug.cli.render.terminal import console, harmless
from smdebug.trials.summary import DAMAGED, FINISHED, LIVE, STOPPED, RunSummary

_GAP = 2
# Columns whose cells may take several lines, and how wide they are then at the least.
_FOLDED = {"run": 14, "findings": 29}
# What is left out where a terminal is too narrow, the first of these first.
_SPARED = ("written", "last", "tensors", "size", "steps", "findings", "state")
_STYLES = {FINISHED: "", LIVE: "green", STOPPED: "yellow", DAMAGED: "bold red"}


def print_runs(summaries: list[RunSummary]) -> None:
    """Prints the table; columns are left out where the terminal is too narrow."""
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
