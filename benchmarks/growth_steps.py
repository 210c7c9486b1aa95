"""A run that gets longer: what a step costs, what opening and reading it costs, its size."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.bench import fresh, own_python, run_json, seconds
from benchmarks.figure import FLOOR, ORIGINAL
from benchmarks.growth import OURS, Curve, Curves

if TYPE_CHECKING:
    from benchmarks.bench import Bench

# How often each is done: what is short is noisy.
SIZES = {100: 3, 1_000: 3, 10_000: 1, 100_000: 1}
# smdebug 1.0.34 writes two files a step, and reads them one by one. The floor is a straight line.
THEIR_LAST = 10_000
NOTES = {
    ORIGINAL: f"measured up to {THEIR_LAST:,} steps, to keep the run short",
    FLOOR: f"nothing in it depends on the steps before, it is measured up to {THEIR_LAST:,}",
}
TENSORS, ROUNDS = 4, 5
NAME, REDUCTION = "gradient/Wide_layers.0.weight", "l2"
COSTS = {
    "microseconds": ("added to a step", "µs"),
    "open": ("open, list the names", "s"),
    "series": ("read one series", "s"),
    "bytes": ("on disk, per step", "bytes"),
    "files": ("files of the run", "files"),
}


def measure(bench: Bench) -> list[Curve]:
    curves = Curves("steps", COSTS, NOTES)
    for size, times in SIZES.items():
        for whose in (OURS, FLOOR, ORIGINAL):
            if (whose != OURS and size > THEIR_LAST) or (whose == ORIGINAL and not bench.peer):
                continue
            work = partial(many, bench, whose, bench.times(size), bench.times(times))
            curves.measure(whose, bench.times(size), work)
    return curves.all()


def many(bench: Bench, whose: str, steps: int, times: int) -> list[dict[str, Any]]:
    return [once(bench, whose, steps) for _ in range(times)]


def once(bench: Bench, whose: str, steps: int) -> dict[str, Any]:
    """All costs of one run, which is gone afterwards."""
    place = fresh(bench.folder / "growth_steps")
    python = bench.peer if whose == ORIGINAL else own_python()
    library = "floor" if whose == FLOOR else "hook"
    result: dict[str, Any] = run_json(
        python, "benchmarks/peer/train_and_save.py", library, place, TENSORS, steps // ROUNDS or 1,
        ROUNDS,
    )  # fmt: skip
    if whose == FLOOR:
        path = place / "floor.bin"
        result["series"] = seconds(lambda: np.fromfile(path, np.float32)[:: 5 * TENSORS + 1].copy())
    else:
        reading = run_json(python, "benchmarks/peer/read_series.py", place / "run", NAME, REDUCTION)
        if reading["values"] != result["steps"]:
            raise RuntimeError(f"{whose} saved {result} and read {reading}")
        result.update(reading)
    fresh(place)
    return result
