"""The peer's side of `write_worker`: smdebug 1.0.34 writes the same."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from content import REDUCTIONS, names, reductions_of_step

from smdebug.core.collection_manager import CollectionManager
from smdebug.core.modes import ModeKeys
from smdebug.core.writer import FileWriter


def write(run, worker, step, tensor_names, values):
    writer = FileWriter(trial_dir=run, step=step, worker=worker)
    for name, row in zip(tensor_names, values, strict=False):
        for reduction, value in zip(REDUCTIONS, row, strict=False):
            writer.write_tensor(
                tdata=value.reshape(()),
                tname=f"smdebug/reductions/{reduction}/{name}",
                write_index=True,
                mode=ModeKeys.TRAIN,
                mode_step=step,
            )
    writer.close()


def main(run, worker, workers, steps, tensors):
    half, tensor_names = int(steps), names(int(tensors))
    made = [reductions_of_step(step, int(tensors)) for step in range(2 * half)]
    manager = CollectionManager()
    manager.set_num_workers(int(workers))
    manager.export(run, f"{worker}_collections.json")
    for part in (range(half), range(half, 2 * half)):
        print("ready", flush=True)
        sys.stdin.readline()
        for step in part:
            write(run, worker, step, tensor_names, made[step])
        print("written", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
