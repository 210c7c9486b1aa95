"""The 21 rules of the original service over 1,000 steps of 1,000 tensors of reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.bench import fresh, own_python, run_json
from benchmarks.figure import FLOOR, Figure
from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Block, BlockSchema, Entry, StepBatch
from smdebug.testing import make_run

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench

STEPS, PARAMETERS, REPETITIONS = 1_000, 499, 3
REDUCTIONS = (
    "min", "max", "mean", "std", "variance", "l2", "abs_mean", "abs_max", "nans", "infs", "zeros",
)  # fmt: skip
SHAPE = (64, 64)


def measure(bench: Bench) -> list[Figure]:
    run = fresh(bench.folder / "rules")
    write(run, bench.times(STEPS))
    found, plain = [], []
    for _ in range(bench.times(REPETITIONS)):
        found.append(run_json(own_python(), "benchmarks/run_all_rules.py", run))
        plain.append(run_json(own_python(), "benchmarks/read_plain.py", run)["seconds"])
    fresh(run)
    statuses = found[0]["statuses"]
    if "failed" in statuses or statuses.get("passed", 0) < 6:
        raise RuntimeError(f"the rules ended as {statuses}")
    what = f"{found[0]['rules']} rules, {STEPS:,} steps x 1,000 tensors, one core"
    ours = [each["seconds"] for each in found]
    # Reading all of it, and judging nothing.
    return [Figure(what, "< 20 s", ours, "s", 20, peers={FLOOR: plain})]


def write(run: Path, steps: int) -> None:
    """A run of reductions that no rule has anything to say about."""
    names = [f"Net_layers.{number}.weight" for number in range(PARAMETERS)]
    layout = BlockSchema(
        tuple([*names, *(f"gradient/{name}" for name in names)]),
        ("float32",) * 2 * PARAMETERS,
        (SHAPE,) * 2 * PARAMETERS,
    )
    make_run(run, range(steps), data=lambda _, step: batch(layout, step), collections=manager())


def manager() -> CollectionManager:
    return CollectionManager(
        [
            Collection("weights", "^(?!gradient).*weight"),
            Collection("gradients", "^gradient"),
            Collection("losses", "[Ll]oss"),
        ]
    )


def batch(layout: BlockSchema, step: int) -> StepBatch:
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
