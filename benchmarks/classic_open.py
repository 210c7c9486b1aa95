"""Opening a finished v1 trial of 10,000 small steps, by smdebug 1.0.34 and by this library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.bench import fresh, own_python, run_json, seconds
from benchmarks.figure import FLOOR, ORIGINAL, Figure
from benchmarks.writing import write
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench

STEPS, REPETITIONS = 10_000, 5


def measure(bench: Bench) -> list[Figure]:
    run, steps = fresh(bench.folder / "classic"), bench.times(STEPS)
    made = [
        StepBatch(step, ModeKeys.TRAIN, step, [Entry("loss", np.array([1.0 / (step + 1)]))])
        for step in range(steps)
    ]
    write(run, made, format="v1")
    ours, theirs, plain = [], [], []
    for _ in range(bench.times(REPETITIONS)):
        if bench.peer:
            theirs.append(opened(bench.peer, run, steps))
        ours.append(opened(own_python(), run, steps))
        plain.append(seconds(lambda: by_hand(run)))
    fresh(run)
    ratios = [their / our for their, our in zip(theirs, ours, strict=False)]
    what = f"finished v1 trial of {STEPS:,} steps: time to open"
    return [
        Figure(
            what, "1/3 of smdebug 1.0.34", ours, "s", 3 if ratios else None, at_least=True,
            peers={ORIGINAL: theirs, FLOOR: plain}, ratios=ratios,
        )
    ]  # fmt: skip


def opened(python: str, run: Path, steps: int) -> float:
    """The seconds it takes; everything must be there."""
    found: dict[str, Any] = run_json(python, "benchmarks/peer/open_run.py", run)
    if (found["steps"], found["names"]) != (steps, 1):
        raise RuntimeError(f"expected {steps} steps of one tensor: {found}")
    return float(found["seconds"])


def by_hand(run: Path) -> int:
    """Reads the JSON of all index files."""
    files = sorted((run / "index").rglob("*.json"))
    return len([json.loads(path.read_bytes()) for path in files])
