"""Writing the made-up training with this library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks.content import REDUCTIONS, names, reductions_of_step
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.base import open_store
from smdebug.storage.writer import RunWriter

if TYPE_CHECKING:
    from pathlib import Path

COLLECTIONS = json.dumps({"collections": {}, "_meta": {"num_workers": 1}})


def batches(steps: int, tensors: int) -> list[StepBatch]:
    """The training as batches, made before the clock runs."""
    tensor_names = names(tensors)
    made = []
    for step in range(steps):
        values = reductions_of_step(step, tensors).astype(float).tolist()
        entries = [
            Entry(
                name, reductions=dict(zip(REDUCTIONS, row, strict=True)), shape=(64, 64),
                dtype="float32",
            )
            for name, row in zip(tensor_names, values, strict=True)
        ]  # fmt: skip
        made.append(StepBatch(step, ModeKeys.TRAIN, step, entries))
    return made


def write(folder: Path, made: list[StepBatch], format: str = "v2") -> None:
    """Writes a run, from the first batch to the end marker."""
    with RunWriter(open_store(str(folder)), format=format) as writer:
        writer.write_collections(COLLECTIONS)
        for batch in made:
            writer.submit(batch)
