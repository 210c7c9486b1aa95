"""The table of runs, one row each."""

from __future__ import annotations

import time

from rich.table import Table
from rich.text import Text

from smdebug.cli.render.numbers import ago, byte_size
from smdebug.cli.render.terminal import console, harmless
from smdebug.trials.run_summary import DAMAGED, FINISHED, LIVE, STOPPED, RunSummary

_GAP = 2
# Columns that may wrap, with their minimum width.
_WRAPPED = {"run": 14, "findings": 29}
# Columns that are dropped on a narrow terminal, in this order.
_OPTIONAL = ("written", "last", "tensors", "size", "steps", "findings", "state")
_STYLES = {FINISHED: "", LIVE: "green", STOPPED: "yellow", DAMAGED: "bold red"}


def print_runs(summaries: list[RunSummary]) -> None:
    """Print the table; a narrow terminal gets fewer columns."""
    out = console()
    columns = _columns(summaries)
    room = out.width
    if not out.is_terminal:
        # Not cut for other programs.
        room = sum(_widths(columns, None).values())
        out = console(room)
    while sum(_widths(columns, 0).values()) > room and any(map(columns.get, _OPTIONAL)):
        del columns[next(name for name in _OPTIONAL if name in columns)]
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
    """Return the cells of the table by column name."""
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
    """Return the widths of columns, with the gap after each.

    Args:
        columns: their cells.
        room: the width of the table; None if it is unlimited.
    """
    whole = {name: max(len(name), *map(len, cells)) + _GAP for name, cells in columns.items()}
    if room is None:
        return whole
    widths = {name: min(width, _WRAPPED.get(name, width)) for name, width in whole.items()}
    for name in (each for each in _WRAPPED if each in widths):
        spare = max(room - sum(widths.values()), 0)
        widths[name] = min(whole[name], widths[name] + spare)
    return widths


def _findings(run: RunSummary) -> Text:
    if not run.findings:
        return Text("")
    return Text(
        f"{sum(run.findings.values())}: {harmless(', '.join(run.findings))}", "bright_yellow"
    )
