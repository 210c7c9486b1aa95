"""Two processes boost one model through XGBoost's collective; each saves what it has.

python examples/xgboost/distributed.py [DIRECTORY]
"""

import multiprocessing
import sys
import tempfile
from typing import Any

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

import smdebug.xgboost as smd

PARAMS = {"objective": "binary:logistic", "max_depth": 3, "nthread": 1}


def train(directory: str, connection: dict[str, Any]) -> None:
    with collective.CommunicatorContext(**connection):
        rank = collective.get_rank()
        random = np.random.default_rng(rank)
        values = random.normal(size=(2000, 4)) * (1 + rank)  # the second worker has wider data
        data = xgboost.DMatrix(values, values.sum(axis=1) + random.normal(size=2000) > 0)
        # Made where the workers are connected: it asks which of them it is.
        hook = smd.Hook(
            directory,
            include_collections=["predictions"],
            include_workers="all",
            validation_data=data,
        )
        evals = [(data, "train")]
        xgboost.train(PARAMS, data, 31, evals=evals, verbose_eval=False, callbacks=[hook])
        hook.close()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tornasole-")
    tracker = RabitTracker(n_workers=2, host_ip="127.0.0.1")
    tracker.start()
    start = multiprocessing.get_context("spawn")
    workers = [start.Process(target=train, args=(where, tracker.worker_args())) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    trial = smd.create_trial(where)
    print(trial, trial.workers())
    for name, reduction in (("train-logloss", None), ("predictions", "std")):
        print(name if reduction is None else f"{reduction} of {name}")
        for each in trial.workers():
            steps, found = trial.tensor(name).series(reduction, worker=each)
            print(f"  {each}:", " ".join(f"{value:6.3f}" for value in found))
