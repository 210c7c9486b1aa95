"""`smdebug check`: is a run as it was written?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from smdebug.cli.open_run import open_place
from smdebug.cli.options import AsJson, RunPath, help_text
from smdebug.cli.render.progress import Bar
from smdebug.cli.render.terminal import console, harmless, print_json
from smdebug.storage.check.run import check_run

if TYPE_CHECKING:
    from rich.console import Console

    from smdebug.storage.check.report import CheckError, CheckNote, CheckReport


def check(run: RunPath, as_json: AsJson = False) -> None:
    store = open_place(run)
    with Bar("files") as progress:
        report = check_run(store, progress.tell)
    if as_json:
        print_json(asdict(report))
    else:
        _show(report, console())
    raise typer.Exit(1 if report.damaged else 0)


check.__doc__ = help_text(
    "Verifies every checksum and every row of a run, and says what is damaged.\n\n"
    "The job may be running. Ends with 1 when anything is damaged.",
    "smdebug check runs/one",
    "smdebug check s3://bucket/job/debug-output --json",
)


def _show(report: CheckReport, out: Console) -> None:
    if report.damages:
        table = Table("file", "where", "what is wrong", header_style="bold red")
        for damage in report.damages:
            cells = (damage.file, _where(damage), damage.what)
            table.add_row(*(Text(harmless(cell), overflow="fold") for cell in cells))
        out.print(table)
    if report.damaged > len(report.damages):
        out.print(f"and {report.damaged - len(report.damages):,} more damages")
    for remark in report.remarks:
        out.print(Text(harmless(f"note: {_said(remark)}"), "yellow"), soft_wrap=True)
    style = "bold red" if report.damaged else "bold green"
    out.print(Text(_summary(report), style), soft_wrap=True)


def _where(damage: CheckError) -> str:
    parts = [
        ("row", damage.row),
        ("offset", damage.offset),
        ("tensor", damage.tensor),
        ("step", damage.step),
    ]
    told = [f"{name} {value}" for name, value in parts if value is not None]
    return ", ".join(told) or (f"worker {damage.worker}" if damage.worker else "")


def _said(remark: CheckNote) -> str:
    size = "" if remark.bytes is None else f", {remark.bytes:,} bytes"
    more = ", ..." if len(remark.files) > 3 else ""
    return f"{remark.what}: {remark.count}{size} ({', '.join(remark.files[:3])}{more})"


def _summary(report: CheckReport) -> str:
    found = f"damages: {report.damaged:,}" if report.damaged else "no damage"
    return (
        f"{found}; checked {report.files:,} files, {report.rows:,} rows, {report.records:,} "
        f"records, {report.bytes:,} bytes in {report.seconds:.1f} s"
    )
