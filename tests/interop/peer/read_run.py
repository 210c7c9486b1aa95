"""read_run.py RUN OUT: writes all that smdebug 1.0.34 sees of a run to OUT.npz and OUT.json.

In the JSON, {"array": key} stands for an array of the npz, {"error": name} for the exception that
smdebug raised instead of an answer.
"""

import json
import sys

import numpy as np

import smdebug
from smdebug.core.modes import ModeKeys
from smdebug.trials import create_trial

REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2")

arrays = {}


def keep(value):
    key = f"a{len(arrays)}"
    arrays[key] = np.asarray(value)
    return {"array": key}


def attempt(ask, pack=keep):
    try:
        return pack(ask())
    except Exception as error:
        return {"error": type(error).__name__}


def row(tensor, step, worker):
    saved = attempt(
        lambda: tensor.reduction_values(step, worker=worker),
        lambda found: {("abs_" if a else "") + name: keep(v) for (name, a), v in found.items()},
    )
    asked = {
        prefix + name: attempt(
            lambda name=name, prefix=prefix: tensor.reduction_value(
                step, name, worker=worker, abs=bool(prefix)
            )
        )
        for name in REDUCTIONS
        for prefix in ("", "abs_")
    }
    return {
        "tensor": tensor.name,
        "step": step,
        "worker": worker,
        "value": attempt(lambda: tensor.value(step, worker=worker)),
        "shape": attempt(lambda: tensor.shape(step, worker=worker), list),
        "saved_reductions": saved,
        "reductions": asked,
    }


def main(path, out):
    trial = create_trial(path)
    names = trial.tensor_names()
    tensors = [trial.tensor(name) for name in names]
    collections = trial.collections()
    seen = {
        "version": smdebug.__version__,
        "workers": trial.workers(),
        "num_workers": trial.num_workers,
        "modes": sorted(mode.name for mode in trial.modes()),
        "steps": {mode.name: trial.steps(mode=mode) for mode in ModeKeys},
        "mode_of_step": [
            [step, trial.mode(step).name, trial.mode_step(step)] for step in trial.steps()
        ],
        "tensor_names": names,
        "tensor_names_of_mode": {
            mode.name: trial.tensor_names(mode=mode) for mode in trial.modes()
        },
        "tensor_names_at": [[step, trial.tensor_names(step=step)] for step in trial.steps()],
        "tensor_names_of_collection": {
            name: trial.tensor_names(collection=name) for name in collections
        },
        "collections": {name: each.to_json_dict() for name, each in collections.items()},
        "tensors": {
            tensor.name: {
                "original_name": tensor.original_name,
                "steps": {mode.name: tensor.steps(mode=mode) for mode in ModeKeys},
                "workers_at": [[step, tensor.workers(step)] for step in tensor.steps()],
            }
            for tensor in tensors
        },
        "rows": [
            row(tensor, step, worker)
            for tensor in tensors
            for step in tensor.steps()
            for worker in tensor.workers(step)
        ],
    }
    # Known only after it was asked for something.
    seen["loaded_all_steps"] = trial.loaded_all_steps
    np.savez(out + ".npz", **arrays)
    with open(out + ".json", "w") as file:
        json.dump(seen, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
