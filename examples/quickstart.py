"""Trains a two-layer network in plain numpy, saves what happens inside, and looks into it.

python examples/quickstart.py [DIRECTORY]
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np

from smdebug import create_trial, modes
from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.reductions import compute_reductions
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.base import open_store
from smdebug.storage.writer import RunWriter


def train(directory: str, steps: int = 200) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(256, 8)).astype(np.float32)
    targets = np.tanh(inputs @ rng.normal(size=(8, 1))).astype(np.float32)
    weights = {"fc1": rng.normal(size=(8, 16)) * 0.5, "fc2": rng.normal(size=(16, 1)) * 0.5}
    collections = CollectionManager(
        [Collection("losses", "loss"), Collection("gradients", "^gradient/")]
    )
    with RunWriter(open_store(directory)) as writer:
        writer.write_collections(collections.to_json())
        for step in range(steps):
            hidden = np.tanh(inputs @ weights["fc1"])
            error = hidden @ weights["fc2"] - targets
            back = error @ weights["fc2"].T * (1 - hidden**2)
            gradients = {"fc1": inputs.T @ back / 256, "fc2": hidden.T @ error / 256}
            entries = [Entry("loss", np.float32((error**2).mean()))]
            for name, gradient in gradients.items():
                reductions = compute_reductions(gradient, ["l2", "abs_max"])
                entries.append(Entry(f"gradient/{name}", reductions=reductions))
                weights[name] -= 0.2 * gradient
            writer.submit(StepBatch(step, modes.TRAIN, step, entries))


def look(directory: str) -> None:
    trial = create_trial(directory)
    print(trial)
    steps, losses = trial.tensor("loss").series(mode=modes.TRAIN)
    for step, loss in zip(steps[::40], losses[::40], strict=True):
        print(f"  step {step:4d}  loss {loss:.4f}  {'#' * int(60 * loss / losses.max())}")
    print(trial.sql("select tensor, max(l2) as largest from run group by tensor order by tensor"))


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    train(where)
    look(where)
    print(f"the run is in {where}")
