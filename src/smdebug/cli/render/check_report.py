"""The report of `smdebug check`: a table of damage, notes, a summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from smdebug.cli.render.terminal import harmless

if TYPE_CHECKING:
    from rich.console import Console

    from smdebug.storage.check.report import CheckError, CheckNote, CheckReport


def print_report(report: CheckReport, out: Console) -> None:
    """Print the report."""
    if report.damages:
        table = Table("file", "where", "what is wrong", header_style="bold red")
        for damage in report.damages:
            cells = (damage.file, _format_location(damage), damage.what)
            table.add_row(*(Text(harmless(cell), overflow="fold") for cell in cells))
        out.print(table)
    if report.damaged > len(report.damages):
        out.print(f"and {report.damaged - len(report.damages):,} more")
    for note in report.remarks:
        out.print(Text(harmless(f"note: {_format_note(note)}"), "yellow"), soft_wrap=True)
    style = "bold red" if report.damaged else "bold green"
    out.print(Text(_summary(report), style), soft_wrap=True)


def _format_location(damage: CheckError) -> str:
    parts = [
        ("row", damage.row),
        ("offset", damage.offset),
        ("tensor", damage.tensor),
        ("step", damage.step),
    ]
    known = [f"{name} {value}" for name, value in parts if value is not None]
    return ", ".join(known) or (f"worker {damage.worker}" if damage.worker else "")


def _format_note(note: CheckNote) -> str:
    size = "" if note.bytes is None else f", {note.bytes:,} bytes"
    more = ", ..." if len(note.files) > 3 else ""
    return f"{note.what}: {note.count}{size} ({', '.join(note.files[:3])}{more})"


def _summary(report: CheckReport) -> str:
    found = f"damaged: {report.damaged:,}" if report.damaged else "no damage"
    return (
        f"{found}; checked {report.files:,} files, {report.rows:,} rows, {report.records:,} "
        f"records, {report.bytes:,} bytes in {report.seconds:.1f} s"
    )
