"""An index with more and more rows: opening the run, one series, SQL over all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.bench import fresh, own_python, run_json
from benchmarks.content import names
from benchmarks.figure import FLOOR, ORIGINAL
from benchmarks.growth import OURS, Curve
from benchmarks.hundred_million import TENSORS, write_run
from benchmarks.writing import write
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch

if TYPE_CHECKING:
    from benchmarks.bench import Bench

# Files of at most 1,000 steps of 1,000 tensors, as a long run has them.
SIZES = {10_000: (1, 10), 100_000: (1, 100), 1_000_000: (1, 1_000), 10_000_000: (10, 1_000)}
REPETITIONS, THEIR_REPETITIONS, THEIR_LAST = 5, 2, 100_000
NOTE = f"more rows would take it many minutes, it is measured up to {THEIR_LAST:,}"
WHAT = {
    "open": ("open, list the names", "s"),
    "series": ("read one series", "s"),
    "sql": ("SQL, a mean for each tensor", "s"),
}
TENSOR = names(TENSORS)[500]


def measure(bench: Bench) -> list[Curve]:
    found: dict[tuple[str, str], list[tuple[int, list[float]]]] = {}
    for rows, (files, steps) in SIZES.items():
        print(f"    {rows:,} rows", flush=True)
        steps = bench.times(steps)
        size = files * steps * TENSORS
        results = once(bench, files, steps)
        if bench.peer and rows <= THEIR_LAST:
            results[ORIGINAL] = original(bench, steps)
        for whose, each in results.items():
            if any(one.get("rows", size) != size for one in each):
                raise RuntimeError(f"{whose} saw other rows than {size}: {each}")
            for cost in WHAT.keys() & each[0].keys():
                values = [one[cost] for one in each]
                found.setdefault((cost, whose), []).append((size, values))
    return [
        Curve("rows", *WHAT[cost], whose, found[cost, whose], NOTE if whose == ORIGINAL else "")
        for cost in WHAT
        for whose in (OURS, ORIGINAL, FLOOR)
        if (cost, whose) in found
    ]


def once(bench: Bench, files: int, steps: int) -> dict[str, list[dict[str, Any]]]:
    """Ours and the floor, in turn."""
    run = fresh(bench.folder / "growth_rows")
    write_run(run, files, steps)
    found: dict[str, list[dict[str, Any]]] = {OURS: [], FLOOR: []}
    for _ in range(bench.times(REPETITIONS)):
        for whose, each in found.items():
            each.append(run_json(own_python(), "benchmarks/read_rows.py", whose, run, TENSOR))
    fresh(run)
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
