"""The 21 rules of the original service over 1,000 steps of 1,000 tensors of reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.figure import Figure, fresh, own_python, run_json
from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Block, Entry, Layout, StepBatch
from smdebug.testing import make_run

if TYPE_CHECKING:
    from pathlib import Path

STEPS, PARAMETERS, REPETITIONS = 1_000, 499, 3
REDUCTIONS = (
    "min", "max", "mean", "std", "variance", "l2", "abs_mean", "abs_max", "nans", "infs", "zeros",
)  # fmt: skip
SHAPE = (64, 64)


def measure(folder: Path, peer: str) -> list[Figure]:
    run = fresh(folder / "rules")
    write(run)
    found = [run_json(own_python(), "benchmarks/run_all_rules.py", run) for _ in range(REPETITIONS)]
    fresh(run)
    statuses = found[0]["statuses"]
    if "failed" in statuses or statuses.get("passed", 0) < 6:
        raise RuntimeError(f"the rules ended as {statuses}")
    what = f"{found[0]['rules']} rules, {STEPS:,} steps x 1,000 tensors, one core ({statuses})"
    return [Figure(what, "< 20 s", [each["seconds"] for each in found], "s", 20)]


def write(run: Path) -> None:
    """A run of reductions that no rule has anything to say about."""
    names = [f"Net_layers.{number}.weight" for number in range(PARAMETERS)]
    layout = Layout(
        tuple([*names, *(f"gradient/{name}" for name in names)]),
        ("float32",) * 2 * PARAMETERS,
        (SHAPE,) * 2 * PARAMETERS,
    )
    make_run(run, range(STEPS), data=lambda _, step: batch(layout, step), collections=manager())


def manager() -> CollectionManager:
    return CollectionManager(
        [
            Collection("weights", "^(?!gradient).*weight"),
            Collection("gradients", "^gradient"),
            Collection("losses", "[Ll]oss"),
        ]
    )


def batch(layout: Layout, step: int) -> StepBatch:
    random = np.random.default_rng(step)
    size = len(layout.names)
    noise = 1 + 0.1 * random.random(size)
    numbers = {name: 0.1 * noise for name in REDUCTIONS}
    numbers["min"] = -numbers["max"]
    numbers["l2"] = 64 * numbers["std"]
    for name in ("nans", "infs", "zeros"):
        numbers[name] = np.zeros(size)
    loss = np.float32(np.exp(-step / 300) + 0.01 * random.random())
    entries = [
        Entry("CrossEntropyLoss_output_0", np.asarray(loss)),
        Entry("Loss_b", np.asarray(loss)),
    ]
    return StepBatch(step, ModeKeys.TRAIN, step, entries, blocks=[Block(layout, None, numbers)])
