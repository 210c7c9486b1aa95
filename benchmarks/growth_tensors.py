"""A model with more and more tensors: what saving five reductions of one costs training."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.bench import fresh, own_python, run_json
from benchmarks.figure import FLOOR, ORIGINAL
from benchmarks.growth import OURS, Curve, Curves

if TYPE_CHECKING:
    from benchmarks.bench import Bench

SIZES, REPETITIONS, ROUNDS = (10, 100, 1_000, 10_000), 2, 5
# A step of 10,000 tensors takes smdebug 1.0.34 seconds.
THEIR_REPETITIONS, THEIR_ROUNDS = 1, 2
COSTS = {
    "microseconds": ("added to a step, per tensor", "µs"),
    "bytes": ("on disk, per tensor and step", "bytes"),
}


def measure(bench: Bench) -> list[Curve]:
    curves = Curves("tensors", COSTS)
    for each in SIZES:
        # One is a gradient.
        size = max(2, bench.times(each))
        for whose in (OURS, FLOOR, ORIGINAL):
            if whose != ORIGINAL or bench.peer:
                times = bench.times(THEIR_REPETITIONS if whose == ORIGINAL else REPETITIONS)
                curves.measure(whose, size, partial(many, bench, whose, size, times))
    return curves.all()


def many(bench: Bench, whose: str, size: int, times: int) -> list[dict[str, float]]:
    """All costs, of one tensor."""
    results = [once(bench, whose, size) for _ in range(times)]
    return [{cost: each[cost] / size for cost in COSTS} for each in results]


def once(bench: Bench, whose: str, size: int) -> dict[str, float]:
    place = fresh(bench.folder / "growth_tensors")
    python = bench.peer if whose == ORIGINAL else own_python()
    library = "floor" if whose == FLOOR else "hook"
    # About as many tensors for every size, and blocks that are long enough for the clock.
    if whose == ORIGINAL:
        steps, rounds = max(1, 200 // size), THEIR_ROUNDS
    else:
        steps, rounds = max(4, 4_000 // size), ROUNDS
    result: dict[str, float] = run_json(
        python, "benchmarks/peer/train_and_save.py", library, place, size, steps, rounds
    )
    fresh(place)
    return result
