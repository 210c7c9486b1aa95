"""A million rows of index: open, list the names, read one series."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.bench import fresh, own_python, run_json, size_of
from benchmarks.content import names
from benchmarks.figure import FLOOR, Figure
from benchmarks.writing import batches, write

if TYPE_CHECKING:
    from benchmarks.bench import Bench

STEPS, TENSORS, REPETITIONS = 1000, 1000, 5


def measure(bench: Bench) -> list[Figure]:
    run, steps = fresh(bench.folder / "index_scale"), bench.times(STEPS)
    write(run, batches(steps, TENSORS))
    asked = run, names(TENSORS)[500], "l2"
    # In processes of their own: peak memory and cold caches are those of a user's first look.
    found, plain = [], []
    for _ in range(bench.times(REPETITIONS)):
        found.append(run_json(own_python(), "benchmarks/open_run.py", *asked))
        plain.append(run_json(own_python(), "benchmarks/open_plain.py", *asked))
        if any(each[-1]["last"] != found[0]["last"] for each in (found, plain)):
            raise RuntimeError(f"different values were read: {found} {plain}")
    disk = size_of(run) / (steps * TENSORS)
    fresh(run)
    what = f"{STEPS:,} steps x {TENSORS:,} tensors x 5 reductions: "
    took, peak = (
        ([each[key] for each in found], {FLOOR: [each[key] for each in plain]})
        for key in ("seconds", "peak_mb")
    )
    return [
        Figure(what + "open, names, one series", "< 1 s", took[0], "s", 1.0, peers={**took[1]}),
        Figure(what + "peak memory of that", "< 600 MB", peak[0], "MB", 600, peers={**peak[1]}),
        # Five numbers of four bytes.
        Figure(what + "on disk per row", "<= 30 B", [disk], "B", 30, peers={FLOOR: [20.0]}),
    ]
