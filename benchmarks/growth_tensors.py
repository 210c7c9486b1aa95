"""A model with more and more tensors: what saving five reductions of one costs training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.bench import fresh, own_python, run_json
from benchmarks.figure import FLOOR, ORIGINAL
from benchmarks.growth import OURS, Curve

if TYPE_CHECKING:
    from benchmarks.bench import Bench

SIZES, REPETITIONS, ROUNDS = (10, 100, 1_000, 10_000), 2, 5
# A step of 10,000 tensors takes smdebug 1.0.34 seconds.
THEIR_REPETITIONS, THEIR_ROUNDS = 1, 2
WHAT = {
    "microseconds": ("training thread, per tensor", "µs"),
    "bytes": ("on disk, per tensor and step", "bytes"),
}


def measure(bench: Bench) -> list[Curve]:
    found: dict[tuple[str, str], list[tuple[int, list[float]]]] = {}
    for size in SIZES:
        for whose in (OURS, FLOOR, ORIGINAL):
            if whose == ORIGINAL and not bench.peer:
                continue
            print(f"    {size:,} tensors, {whose}", flush=True)
            times = bench.times(THEIR_REPETITIONS if whose == ORIGINAL else REPETITIONS)
            results = [once(bench, whose, max(2, bench.times(size))) for _ in range(times)]
            for cost in WHAT:
                values = [each[cost] / max(2, bench.times(size)) for each in results]
                place = found.setdefault((cost, whose), [])
                place.append((max(2, bench.times(size)), values))
    return [
        Curve("tensors", *WHAT[cost], whose, found[cost, whose])
        for cost in WHAT
        for whose in (OURS, ORIGINAL, FLOOR)
        if (cost, whose) in found
    ]


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
