"""The peer's side of `raw_tensors`: smdebug 1.0.34 writes and reads tensors of 64 MB."""

import json
import sys
import time

import numpy as np
from smdebug.core.access_layer.utils import training_has_ended

from smdebug.core.collection_manager import CollectionManager
from smdebug.core.modes import ModeKeys
from smdebug.core.writer import FileWriter
from smdebug.trials import create_trial


def write(run, arrays):
    for step, array in enumerate(arrays):
        writer = FileWriter(trial_dir=run, step=step, worker="worker_0")
        writer.write_tensor(
            tdata=array, tname="w", write_index=True, mode=ModeKeys.TRAIN, mode_step=step
        )
        writer.close()


def main(run, steps, elements):
    rng = np.random.default_rng(0)
    arrays = [rng.random(int(elements), np.float32) for _ in range(int(steps))]
    began = time.perf_counter()
    write(run, arrays)
    written = time.perf_counter() - began
    manager = CollectionManager()
    manager.set_num_workers(1)
    manager.export(run, "worker_0_collections.json")
    training_has_ended(run)
    tensor = create_trial(run).tensor("w")
    began = time.perf_counter()
    total = sum(float(tensor.value(step).sum()) for step in range(int(steps)))
    read = time.perf_counter() - began
    right = abs(total - sum(float(array.sum()) for array in arrays)) < 1
    print(json.dumps({"write": written, "read": read, "right": bool(right)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
