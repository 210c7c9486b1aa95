"""The peer's side of `against_original`: smdebug 1.0.34 writes and reads the same content."""

import json
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from content import REDUCTIONS, names, reductions_of_step
from smdebug.core.access_layer.utils import training_has_ended

from smdebug.core.collection_manager import CollectionManager
from smdebug.core.modes import ModeKeys
from smdebug.core.writer import FileWriter
from smdebug.trials import create_trial


def write(run, made, tensor_names):
    for step, values in enumerate(made):
        writer = FileWriter(trial_dir=run, step=step, worker="worker_0")
        for name, row in zip(tensor_names, values, strict=False):
            for reduction, value in zip(REDUCTIONS, row, strict=False):
                writer.write_tensor(
                    tdata=np.asarray(value),
                    tname=f"smdebug/reductions/{reduction}/{name}",
                    write_index=True,
                    mode=ModeKeys.TRAIN,
                    mode_step=step,
                )
        writer.close()
    manager = CollectionManager()
    manager.set_num_workers(1)
    manager.export(run, "worker_0_collections.json")
    training_has_ended(run)


def read_all(run):
    trial = create_trial(run)
    total = 0.0
    for name in trial.tensor_names():
        tensor = trial.tensor(name)
        for step in tensor.steps():
            for reduction in REDUCTIONS:
                total += float(tensor.reduction_value(step, reduction))
    return total


def main(path, steps, tensors):
    tensor_names = names(int(tensors))
    made = [reductions_of_step(step, int(tensors)) for step in range(int(steps))]
    write(f"{path}/warm", made[:1], tensor_names)
    read_all(f"{path}/warm")
    run = f"{path}/run"
    began = time.perf_counter()
    write(run, made, tensor_names)
    written = time.perf_counter()
    total = read_all(run)
    ended = time.perf_counter()
    shutil.rmtree(f"{path}/warm")
    print(json.dumps({"write": written - began, "read": ended - written, "sum": total}))


if __name__ == "__main__":
    main(*sys.argv[1:])
