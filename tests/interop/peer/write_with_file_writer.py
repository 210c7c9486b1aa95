"""write_with_file_writer.py OUT_DIR TRUTH.npz: every dtype, through smdebug's FileWriter.

The run has three steps in three modes and is left without its end file, as if still training. In
the npz the array of tensor T at step S is called "S|T".
"""

import sys

import numpy as np

from smdebug.core.collection_manager import CollectionManager
from smdebug.core.modes import ModeKeys
from smdebug.core.writer import FileWriter

STEPS = {0: (ModeKeys.TRAIN, 0), 3: (ModeKeys.TRAIN, 1), 1500: (ModeKeys.EVAL, 0)}
NUMBERS = ("float16", "float32", "float64", "int32", "int64", "uint8", "bool", "complex128")
SPECIAL = {
    "not_finite": np.array([np.nan, np.inf, -np.inf, -0.0], np.float32),
    "scalar": np.array(2.5),
    "one": np.array([7], np.int64),
    "strings": np.array(["gain", "größe", "", "a/b:0"]),
    "large": np.arange(40_000, dtype=np.float64).reshape(200, 10, 20),
}
# Written by smdebug, and then not readable by itself.
UNREADABLE = ("int16", "uint16", "uint32", "uint64", "complex64")


def tensors(step):
    random = np.random.default_rng(step)
    found = {f"dtype/{n}": random.integers(0, 2, (2, 3)).astype(n) for n in NUMBERS}
    found.update({f"unreadable/{n}": random.integers(0, 9, (2, 3)).astype(n) for n in UNREADABLE})
    return {**found, **SPECIAL}


def main(out_dir, truth_file):
    truth = {}
    for step, (mode, mode_step) in STEPS.items():
        writer = FileWriter(out_dir, "worker_0", step=step)
        for name, value in tensors(step).items():
            writer.write_tensor(value, name, mode=mode, mode_step=mode_step)
            truth[f"{step}|{name}"] = value
        writer.write_tensor(1.5, "python_float", mode=mode, mode_step=mode_step)
        truth[f"{step}|python_float"] = np.array([1.5])
        writer.write_shape("shape_only", (4, 0, 2), mode, mode_step, original_name="graph/name:0")
        writer.close()
    manager = CollectionManager()
    manager.get("numbers").include(["^dtype/", "scalar|one"])
    manager.get("named").tensor_names = ["strings", "large", "never_saved"]
    manager.set_num_workers(1)
    manager.export(out_dir, "worker_0_collections.json")
    np.savez(truth_file, **truth)


if __name__ == "__main__":
    main(*sys.argv[1:])
