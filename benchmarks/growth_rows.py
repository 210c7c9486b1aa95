"""An index with more and more rows: opening the run, one series, SQL over all of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.bench import fresh, own_python, run_json
from benchmarks.content import names
from benchmarks.figure import FLOOR, ORIGINAL
from benchmarks.growth import OURS, Curve, Curves
from benchmarks.hundred_million import TENSORS, write_run
from benchmarks.writing import write
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench

# Files of at most 1,000 steps of 1,000 tensors, as a long run has them.
SIZES = {10_000: (1, 10), 100_000: (1, 100), 1_000_000: (1, 1_000), 10_000_000: (10, 1_000)}
REPETITIONS, THEIR_REPETITIONS, THEIR_LAST = 5, 2, 100_000
NOTE = f"measured up to {THEIR_LAST:,} rows, and without SQL; to keep the run short"
COSTS = {
    "open": ("open, list the names", "s"),
    "series": ("read one series", "s"),
    "sql": ("SQL, a mean for each tensor", "s"),
}
TENSOR = names(TENSORS)[500]


def measure(bench: Bench) -> list[Curve]:
    curves = Curves("rows", COSTS, {ORIGINAL: NOTE})
    for rows, (files, count) in SIZES.items():
        steps = bench.times(count)
        run = fresh(bench.folder / "growth_rows")
        write_run(run, files, steps)
        size = files * steps * TENSORS
        for whose in (OURS, FLOOR):
            curves.measure(whose, size, partial(read, bench, whose, run, size))
        fresh(run)
        if bench.peer and rows <= THEIR_LAST:
            curves.measure(ORIGINAL, size, partial(original, bench, steps))
    return curves.all()


def read(bench: Bench, whose: str, run: Path, size: int) -> list[dict[str, Any]]:
    """Opens a run and reads it, in new processes."""
    program = "benchmarks/read_rows.py"
    found = [
        run_json(own_python(), program, whose, run, TENSOR) for _ in range(bench.times(REPETITIONS))
    ]
    if any(each["rows"] != size for each in found):
        raise RuntimeError(f"{whose} saw other rows than {size}: {found}")
    return found


def original(bench: Bench, steps: int) -> list[dict[str, Any]]:
    """smdebug 1.0.34, on a run of format v1 with the same rows."""
    run = fresh(bench.folder / "growth_rows")
    write(run, classic(steps), format="v1")
    asked = run, TENSOR, "l2"
    found = [
        run_json(bench.peer, "benchmarks/peer/read_series.py", *asked)
        for _ in range(bench.times(THEIR_REPETITIONS))
    ]
    if any((one["names"], one["values"]) != (TENSORS, steps) for one in found):
        raise RuntimeError(f"expected {TENSORS} tensors, {steps} values: {found}")
    fresh(run)
    return found


def classic(steps: int) -> list[StepBatch]:
    return [
        StepBatch(
            step, ModeKeys.TRAIN, step,
            [
                Entry(name, reductions={"l2": 1.0 / (1 + step)}, shape=(64, 64), dtype="float32")
                for name in names(TENSORS)
            ],
        )
        for step in range(steps)
    ]  # fmt: skip
