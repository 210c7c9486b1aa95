"""Export a run for `smdebug export`, and describe the result."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from smdebug.trials.export.arrays import export_npz, export_safetensors
from smdebug.trials.export.convert import convert_run
from smdebug.trials.export.table import export_csv, export_parquet
from smdebug.trials.export.tensorboard import export_tensorboard

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.trials.export.target import ExportResult
    from smdebug.trials.selection import Selection

    Exporter = Callable[..., ExportResult]

_MOST_NAMED = 5


def write_run(
    format: str,
    selection: Selection,
    out: str,
    values: bool,
    force: bool,
    tell: Callable[[int, int], None],
) -> dict[str, Any]:
    """Export a run; return what was written.

    Args:
        format: parquet, csv, safetensors, npz, tensorboard, v1 or v2.
        selection: the part of the run.
        out: a file, directory or URL.
        values: also raw values; parquet only.
        force: replace existing files.
        tell: called with the numbers of steps done and of all steps.
    """
    if format == "tensorboard":
        board = export_tensorboard(selection.trial, out, force, tell, selection)
        return {"out": out, **asdict(board)}
    if format in ("v1", "v2"):
        done = convert_run(selection, out, format, force=force, tell=tell)
    elif format == "parquet":
        done = export_parquet(selection, out, values=values, force=force, tell=tell)
    else:
        exporters: dict[str, Exporter] = {
            "csv": export_csv,
            "safetensors": export_safetensors,
            "npz": export_npz,
        }
        done = exporters[format](selection, out, force=force, tell=tell)
    return asdict(done)


def export_summary(format: str, done: dict[str, Any]) -> list[str]:
    """Return lines about what was written and what was skipped."""
    steps, out = _count(done["steps"], "step"), done["out"]
    if format == "tensorboard":
        what = f"{done['scalars']} scalars and {done['histograms']} histograms"
    else:
        table = format in ("parquet", "csv")
        what = _count(done["rows"], "row" if table else "tensor")
    lines = [f"{what} of {steps} are in {out}"]
    for part, text in (("left_out", "skipped"), ("widened", "written as float32")):
        names = done.get(part, {})
        if names:
            shown = [f"{name} ({why})" for name, why in sorted(names.items())[:_MOST_NAMED]]
            more = len(names) - len(shown)
            rest = f" and {more} more" if more else ""
            lines.append(f"{_count(len(names), 'tensor')} {text}: {', '.join(shown)}{rest}")
    return lines


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
