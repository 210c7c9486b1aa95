"""One of two workers that train together: scenarios, one after the other, each with its tracker.

Next to the run every worker writes what XGBoost itself reports: the model, and some numbers.
"""

from __future__ import annotations

import json
import logging
import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xgboost
from tests.xgboost.data import features, labels, train
from xgboost import collective
from xgboost.callback import EarlyStopping, TrainingCallback
from xgboost.core import DataSplitMode

import smdebug.xgboost as smd
from smdebug.storage.format.keys import END_KEY
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.reductions import Array

ROUNDS = 4
ROWS = 200
SAMPLES = 30
HYPERPARAMETERS = {"max_depth": 3, "objective": "binary:logistic"}
EVERY = smd.SaveConfig(save_interval=1)


def rows_of(rank: int, rows: int = ROWS) -> tuple[Array, Array]:
    """The rows of a worker, and their labels."""
    values = features(rows, seed=10 + rank)
    return values, labels(values)


def own_matrix(rank: int) -> Any:
    return xgboost.DMatrix(*rows_of(rank))


def quantile_matrix(rank: int, reference: Any = None) -> Any:
    return xgboost.QuantileDMatrix(*rows_of(rank), ref=reference)


def write_csv(path: Path, rank: int) -> tuple[str, str]:
    """A file of the rows of a worker; what XGBoost reads of it is what the matrix holds."""
    values, found = rows_of(rank)
    lines = [
        ",".join([str(int(label)), *(repr(float(cell)) for cell in row)])
        for row, label in zip(values, found, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path), "csv"


class Job:
    """What a scenario is given: who it is, and where to put things."""

    def __init__(self, rank: int, folder: Path) -> None:
        self.rank = rank
        self.folder = folder
        self.run = folder / "run"
        self.hooks: list[smd.Hook] = []

    def hook(self, **options: Any) -> smd.Hook:
        given: dict[str, Any] = {"save_all": True, "save_config": EVERY, "shap_samples": SAMPLES,
                                 "hyperparameters": HYPERPARAMETERS, **options}  # fmt: skip
        hook = smd.Hook(self.run, **given)
        self.hooks.append(hook)
        return hook

    def keep(self, booster: Any, **more: Any) -> None:
        """Writes down the model and what XGBoost says of it."""
        booster.save_model(self.folder / f"model_{self.rank}.json")
        told = {"rounds": booster.num_boosted_rounds(), **more}
        path = self.folder / f"told_{self.rank}.json"
        path.write_text(json.dumps(told), encoding="utf-8")


def plain(job: Job, data: Any, hook: Any, **options: Any) -> None:
    """Trains, and keeps what there is to compare with."""
    result: dict[str, Any] = {}
    rounds = options.pop("rounds", ROUNDS)
    booster = train(hook, rounds, data=data, evals_result=result, **options)
    job.keep(booster, metrics=result)


# ---- scenarios: called in the context of the communicator


def bare(job: Job) -> None:
    plain(job, own_matrix(job.rank), None)


def one(job: Job) -> None:
    data = own_matrix(job.rank)
    plain(job, data, job.hook(train_data=data, validation_data=data))


def all_(job: Job) -> None:
    data = own_matrix(job.rank)
    plain(job, data, job.hook(include_workers="all", train_data=data, validation_data=data))


def named(job: Job) -> None:
    name = ("left", "right/2")[job.rank]
    plain(job, own_matrix(job.rank), job.hook(include_workers="all", worker=name))


def hook_on_the_first(job: Job) -> None:
    data = own_matrix(job.rank)
    hook = job.hook(train_data=data, validation_data=data) if job.rank == 0 else None
    plain(job, data, hook)


def hook_on_the_second(job: Job) -> None:
    data = own_matrix(job.rank)
    hook = job.hook(train_data=data, validation_data=data) if job.rank == 1 else None
    plain(job, data, hook)


def quantile_bare(job: Job) -> None:
    plain(job, quantile_matrix(job.rank), None)


def quantile_one(job: Job) -> None:
    data = quantile_matrix(job.rank)
    plain(job, data, job.hook(train_data=data, validation_data=data))


def quantile_all(job: Job) -> None:
    data = quantile_matrix(job.rank)
    plain(job, data, job.hook(include_workers="all", train_data=data, validation_data=data))


def csv_one(job: Job) -> None:
    given = write_csv(job.folder / f"rows_{job.rank}.csv", job.rank)
    plain(job, own_matrix(job.rank), job.hook(train_data=given, validation_data=given))


def csv_all(job: Job) -> None:
    given = write_csv(job.folder / f"rows_{job.rank}.csv", job.rank)
    hook = job.hook(include_workers="all", train_data=given, validation_data=given)
    plain(job, own_matrix(job.rank), hook)


def data_on_the_first(job: Job) -> None:
    data = own_matrix(job.rank)
    given = {"train_data": data, "validation_data": data} if job.rank == 0 else {}
    plain(job, data, job.hook(include_workers="all", **given))


def csv_on_the_second(job: Job) -> None:
    given: dict[str, Any] = {}
    if job.rank == 1:
        file = write_csv(job.folder / "rows_1.csv", 1)
        given = {"train_data": file, "validation_data": file}
    plain(job, own_matrix(job.rank), job.hook(include_workers="all", **given))


def closed_inside(job: Job) -> None:
    hook = job.hook(include_workers="all")
    plain(job, own_matrix(job.rank), hook)
    hook.close()


def unclosed(job: Job) -> None:
    plain(job, own_matrix(job.rank), job.hook(include_workers="all"))


def goes_on(job: Job) -> None:
    data = own_matrix(job.rank)
    hook = job.hook(include_workers="all")
    first = train(hook, ROUNDS, data=data)
    plain(job, data, hook, xgb_model=first)


def early_stop(job: Job) -> None:
    data, validation = own_matrix(job.rank), xgboost.DMatrix(*rows_of(job.rank + 5))
    early = EarlyStopping(rounds=2, data_name="validation")
    hook = job.hook(include_workers="all")
    plain(
        job, data, hook, rounds=200, callbacks=[early],
        evals=[(data, "train"), (validation, "validation")],
    )  # fmt: skip


def fails_on_the_second(job: Job) -> None:
    """The directory of one worker becomes unusable."""
    hook = job.hook(include_workers="all", flush_seconds=0)

    class Fail(TrainingCallback):
        def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if job.rank == 1 and epoch == 1:
                hook.flush()
                hook._pipeline.run.store.write = refuse  # type: ignore[method-assign]
            return False

    def refuse(key: str, chunks: Any) -> None:
        raise OSError(28, "No space left on device")

    plain(job, own_matrix(job.rank), hook, callbacks=[Fail()])


def column_matrix(rank: int) -> Any:
    values, found = rows_of(0)
    mine = values[:, :3] if rank == 0 else values[:, 3:]
    return xgboost.DMatrix(mine, found, data_split_mode=DataSplitMode.COL)


def columns_bare(job: Job) -> None:
    plain(job, column_matrix(job.rank), None)


def columns_one(job: Job) -> None:
    data = column_matrix(job.rank)
    plain(job, data, job.hook(train_data=data, validation_data=data))


def columns_all(job: Job) -> None:
    data = column_matrix(job.rank)
    plain(job, data, job.hook(include_workers="all", train_data=data, validation_data=data))


# ---- scenarios that end by a stop: there are more rounds than a test can wait for

MANY = 1_000_000


def stopped_by_a_rule(job: Job) -> None:
    hook = job.hook(
        save_all=False, include_workers="all", rules=["TreeDepth:depth=2"], on_finding="stop",
        flush_seconds=0.1,
    )  # fmt: skip
    plain(job, own_matrix(job.rank), hook, rounds=MANY)
    assert hook.closed


def stopped_by_a_request(job: Job) -> None:
    hook = job.hook(save_all=False, flush_seconds=0)

    class Ask(TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if job.rank == 1 and epoch == 50:
                create_trial(str(job.run)).request_stop("by hand")
            return False

    plain(job, own_matrix(job.rank), hook, rounds=MANY, callbacks=[Ask()])
    assert hook.closed


SCENARIOS: dict[str, Callable[[Job], None]] = {
    each.__name__.rstrip("_"): each
    for each in (
        bare, one, all_, named, hook_on_the_first, hook_on_the_second, quantile_bare, quantile_one,
        quantile_all, csv_one, csv_all, data_on_the_first, csv_on_the_second, closed_inside,
        unclosed, goes_on, early_stop, fails_on_the_second, columns_bare, columns_one, columns_all,
        stopped_by_a_rule, stopped_by_a_request,
    )
}  # fmt: skip


def early_hook(job: Job, tracker: dict[str, Any]) -> None:
    """The hook is made before the workers are connected."""
    hook = job.hook(include_workers="all")
    with collective.CommunicatorContext(**tracker):
        data = own_matrix(job.rank)
        hook.train_data = hook.validation_data = data
        plain(job, data, hook)
    hook.close()


def second_closes_first(job: Job, tracker: dict[str, Any]) -> None:
    """Both close when they are no longer connected; the first one waits for the second."""
    pipe = job.folder / "pipe"
    with collective.CommunicatorContext(**tracker):
        hook = job.hook(include_workers="all")
        plain(job, own_matrix(job.rank), hook)
        if job.rank == 0:
            os.mkfifo(pipe)
        # All workers are notified when it exists.
        collective.broadcast("there", 0)
    if job.rank == 0:
        told = pipe.read_text(encoding="utf-8")
        ended = (job.run / END_KEY).exists()
        (job.folder / "seen.json").write_text(json.dumps([told, ended]), encoding="utf-8")
        hook.close()
    else:
        hook.close()
        pipe.write_text("closed", encoding="utf-8")


# Those that connect the workers themselves.
OUTSIDE = {"early_hook": early_hook, "second_closes_first": second_closes_first}


def scenario(name: str, rank: int, folder: Path, tracker: dict[str, Any]) -> None:
    """Runs one scenario; a file says how it ended."""
    folder.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(folder / f"log_{rank}.txt", encoding="utf-8")
    logging.getLogger("smdebug").addHandler(handler)
    job, end = Job(rank, folder), "done"
    try:
        if name in OUTSIDE:
            OUTSIDE[name](job, tracker)
        else:
            with collective.CommunicatorContext(**tracker):
                assert collective.get_rank() == rank
                SCENARIOS[name](job)
            # The workers are no longer connected.
            if name != "unclosed":
                for hook in job.hooks:
                    hook.close()
    except BaseException:
        end = traceback.format_exc()
    (folder / f"end_{rank}.txt").write_text(end, encoding="utf-8")
    logging.getLogger("smdebug").removeHandler(handler)
    handler.close()


def run(rank: int, folder: str, trackers: dict[str, dict[str, Any]]) -> None:
    """The main function of a worker.

    Args:
        rank: which of the workers it is.
        folder: where everything goes.
        trackers: for each scenario, in their order, how its tracker is found.
    """
    for name, tracker in trackers.items():
        scenario(name, rank, Path(folder) / name, {**tracker, "dmlc_task_id": str(rank)})
