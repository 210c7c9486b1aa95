"""Opening a finished v1 trial of 10,000 small steps, by smdebug 1.0.34 and by this library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.figure import Figure, fresh, own_python, run_json
from benchmarks.writing import write
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch

if TYPE_CHECKING:
    from pathlib import Path

STEPS, REPETITIONS = 10_000, 5


def measure(folder: Path, peer: str) -> list[Figure]:
    run = fresh(folder / "classic")
    made = [
        StepBatch(step, ModeKeys.TRAIN, step, [Entry("loss", np.array([1.0 / (step + 1)]))])
        for step in range(STEPS)
    ]
    write(run, made, format="v1")
    ratios = []
    for _ in range(REPETITIONS):
        theirs = run_json(peer, "benchmarks/peer/open_run.py", run)
        ours = run_json(own_python(), "benchmarks/peer/open_run.py", run)
        if theirs["steps"] != ours["steps"] or theirs["names"] != ours["names"]:
            raise RuntimeError(f"the two libraries see different runs: {theirs} {ours}")
        ratios.append(theirs["seconds"] / ours["seconds"])
    fresh(run)
    what = f"finished v1 trial of {STEPS:,} steps, time to open: smdebug 1.0.34 over ours"
    return [Figure(what, ">= 3x", ratios, "x", 3, at_least=True)]
