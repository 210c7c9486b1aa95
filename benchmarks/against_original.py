"""The same content written, opened and read by smdebug 1.0.34 and by this library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.bench import fresh, own_python, run_json, seconds, size_of
from benchmarks.content import REDUCTIONS, reductions_of_step
from benchmarks.figure import FLOOR, ORIGINAL, Figure

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench

STEPS, TENSORS, REPETITIONS = 60, 150, 5
# What is measured, in which unit, and how much more it must be for smdebug 1.0.34.
COSTS = {
    "write": ("time to write", "s", 20),
    "read": ("time to open and read all, value by value", "s", 10),
    "size": ("size on disk", "MB", 20),
}


def measure(bench: Bench) -> list[Figure]:
    found: dict[str, list[dict[str, float]]] = {"ours": [], FLOOR: []}
    if bench.peer:
        found[ORIGINAL] = []
    for _ in range(bench.times(REPETITIONS)):
        for whose, results in found.items():
            results.append(once(bench, whose))
        sums = [results[-1]["sum"] for results in found.values()]
        if max(sums) - min(sums) > 1e-6 * abs(sums[0]):
            raise RuntimeError(f"different values were read: {found}")
    return [figure_of(cost, found) for cost in COSTS]


def once(bench: Bench, whose: str) -> dict[str, float]:
    """What writing and reading takes, and the size."""
    place = fresh(bench.folder / "against_original")
    steps = bench.times(STEPS)
    if whose == FLOOR:
        result = by_hand(place / "floor.bin", steps)
    elif whose == ORIGINAL:
        program = "benchmarks/peer/write_and_read.py"
        result = run_json(bench.peer, program, place, steps, TENSORS)
    else:
        result = run_json(own_python(), "benchmarks/write_and_read.py", place, steps, TENSORS)
    return {**result, "size": size_of(place) / 1e6}


def by_hand(path: Path, steps: int) -> dict[str, float]:
    """The bare numbers in a file, without a name."""
    made = [reductions_of_step(step, TENSORS) for step in range(steps)]
    sums: list[float] = []

    def write() -> None:
        with path.open("wb") as file:
            for values in made:
                values.tofile(file)

    def read() -> None:
        values = np.fromfile(path, np.float32).reshape(steps, TENSORS, len(REDUCTIONS))
        sums.append(float(values.sum(dtype=np.float64)))

    return {"write": seconds(write), "read": seconds(read), "sum": sums[0]}


def figure_of(cost: str, found: dict[str, list[dict[str, float]]]) -> Figure:
    title, unit, limit = COSTS[cost]
    values = {whose: [each[cost] for each in results] for whose, results in found.items()}
    ours, theirs = values.pop("ours"), values.get(ORIGINAL, [])
    ratios = [their / our for their, our in zip(theirs, ours, strict=False)]
    peers: dict[str, list[float] | str] = {**values}
    what = f"{STEPS} steps x {TENSORS} tensors x 5 reductions: {title}"
    target = f"1/{limit} of smdebug 1.0.34"
    if not ratios:
        return Figure(what, target, ours, unit, peers=peers)
    return Figure(what, target, ours, unit, limit, at_least=True, peers=peers, ratios=ratios)
