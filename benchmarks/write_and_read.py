"""Writes the made-up training and reads it back, value by value as old scripts do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.bench import seconds
from benchmarks.content import REDUCTIONS
from benchmarks.writing import batches, write
from smdebug.trials import create_trial


def read_all(path: str) -> float:
    trial = create_trial(path)
    total = 0.0
    for name in trial.tensor_names():
        tensor = trial.tensor(name)
        for step in tensor.steps():
            for reduction in REDUCTIONS:
                total += float(tensor.reduction_value(step, reduction))
    return total


def main(path: str, steps: str, tensors: str) -> None:
    made = batches(int(steps), int(tensors))
    # Once without the clock: imports and thread pools are not part of either library's figure.
    write(Path(path) / "warm", made[:1])
    read_all(f"{path}/warm")
    run = Path(path) / "run"
    totals: list[float] = []
    result = {
        "write": seconds(lambda: write(run, made)),
        "read": seconds(lambda: totals.append(read_all(str(run)))),
    }
    import shutil

    shutil.rmtree(Path(path) / "warm")
    print(json.dumps({**result, "sum": totals[0]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
