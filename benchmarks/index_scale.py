"""A million rows of index: open, list the names, read one series."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.content import names
from benchmarks.figure import Figure, fresh, own_python, run_json, size_of
from benchmarks.writing import batches, write

if TYPE_CHECKING:
    from pathlib import Path

STEPS, TENSORS, REPETITIONS = 1000, 1000, 5


def measure(folder: Path, peer: str) -> list[Figure]:
    run = fresh(folder / "index_scale")
    write(run, batches(STEPS, TENSORS))
    # In processes of their own: peak memory and cold caches are those of a user's first look.
    found = [
        run_json(own_python(), "benchmarks/open_run.py", run, names(TENSORS)[500], "l2")
        for _ in range(REPETITIONS)
    ]
    what = f"{STEPS:,} steps x {TENSORS:,} tensors x 5 reductions: "
    return [
        Figure(what + "open, names, one series", "< 1 s", [f["seconds"] for f in found], "s", 1.0),
        Figure(what + "peak RSS", "< 600 MB", [f["peak_mb"] for f in found], "MB", 600),
        Figure(what + "on disk per row", "<= 30 B", [size_of(run) / (STEPS * TENSORS)], "B", 30),
    ]
