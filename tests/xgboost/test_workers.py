"""Several workers that train together through XGBoost's own collective.

Processes are dear, so two of them run many scenarios one after the other; the tests look at what
they left: see `programs/workers.py`.
"""

from __future__ import annotations

import json
import multiprocessing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xgboost
from tests.xgboost.programs.workers import (
    HYPERPARAMETERS,
    ROUNDS,
    ROWS,
    SAMPLES,
    own_matrix,
    rows_of,
    run,
)
from xgboost.tracker import RabitTracker

from smdebug.storage.format.keys import END_KEY
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.reductions import Array
    from smdebug.trials.trial import Trial

WORLD = 2
BOTH = ["worker_0", "worker_1"]
# A hang is a failure, not a wait.
TIMEOUT = 60


class Jobs:
    """Scenarios that ran in processes: groups at the same time, each one scenario after another."""

    def __init__(self, folder: Path, *groups: tuple[str, ...]) -> None:
        self._folder = folder
        # They serve as long as they live.
        self._trackers = [self._tracker() for group in groups for _ in group]
        waiting = iter(self._trackers)
        found = [{name: next(waiting).worker_args() for name in group} for group in groups]
        context = multiprocessing.get_context("spawn")
        processes = [
            context.Process(target=run, args=(rank, str(folder), trackers))
            for trackers in found
            for rank in range(WORLD)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(TIMEOUT)
        for process in processes:
            process.kill()
            process.join()

    @staticmethod
    def _tracker() -> Any:
        tracker = RabitTracker(n_workers=WORLD, host_ip="127.0.0.1", sortby="task")
        tracker.start()
        return tracker

    def path(self, name: str) -> Path:
        """Where the run of a scenario is; it has ended well in both processes."""
        ends = [self._folder / name / f"end_{rank}.txt" for rank in range(WORLD)]
        said = [end.read_text(encoding="utf-8") if end.exists() else "hangs" for end in ends]
        assert said == ["done", "done"], "\n".join(said)
        return self._folder / name

    def told(self, name: str) -> list[Any]:
        """What XGBoost returned to each worker."""
        paths = [self.path(name) / f"told_{rank}.json" for rank in range(WORLD)]
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths]

    def models(self, name: str) -> list[Any]:
        found = [self.path(name) / f"model_{rank}.json" for rank in range(WORLD)]
        return [xgboost.Booster(model_file=each) for each in found]

    def log(self, name: str, rank: int) -> list[str]:
        text = (self.path(name) / f"log_{rank}.txt").read_text(encoding="utf-8")
        return text.splitlines()

    def trial(self, name: str) -> Trial:
        return create_trial(str(self.path(name) / "run"))


def assert_same_models(jobs: Jobs, name: str, other: str) -> None:
    """A hook changes no model, and all workers have the same."""
    (first, second), (bare, _) = jobs.models(name), jobs.models(other)
    assert first.save_raw("json") == second.save_raw("json") == bare.save_raw("json")


def assert_metrics(jobs: Jobs, name: str, workers: list[str], steps: Any = range(ROUNDS)) -> None:
    """Every worker saved the metrics that XGBoost returned to it."""
    trial, told = jobs.trial(name), jobs.told(name)
    assert trial.workers() == workers
    for rank, worker in enumerate(workers):
        for data, metrics in told[rank]["metrics"].items():
            for metric, history in metrics.items():
                tensor = trial.tensor(f"{data}-{metric}")
                assert len(history) == len(steps)
                for step, value in zip(steps, history, strict=True):
                    assert tensor.value(step, worker=worker) == [value]


def assert_model_of(trial: Trial, booster: Any, workers: list[str], step: int = ROUNDS - 1) -> None:
    """Trees and importances are those of the model, on every worker that saves."""
    frame = booster.trees_to_dataframe()
    frame = frame[frame["Tree"] == step]
    for worker in workers:
        assert trial.tensor("trees/ID").value(step, worker=worker).tolist() == list(frame["ID"])
        found = trial.tensor("trees/Feature").value(step, worker=worker).tolist()
        assert found == list(frame["Feature"])
        for kind in ("weight", "gain", "cover", "total_gain", "total_cover"):
            scores = booster.get_score(importance_type=kind)
            total = sum(scores.values())
            for feature, score in scores.items():
                tensor = trial.tensor(f"feature_importance/{kind}/{feature}")
                np.testing.assert_allclose(
                    tensor.value(step, worker=worker), [score / total], rtol=1e-6
                )


def sampled(values: Array) -> Array:
    """The rows that SHAP values are computed for: as many as requested, evenly spaced."""
    chosen = np.linspace(0, len(values) - 1, SAMPLES).astype(np.int64)
    found: Array = values[chosen]
    return found


def assert_data_of(
    trial: Trial, booster: Any, ranks: list[int], step: int = ROUNDS - 1, rtol: float = 0
) -> None:
    """Labels, predictions and SHAP values are of the rows of each worker."""
    for rank in ranks:
        worker = f"worker_{rank}"
        values, found = rows_of(rank)
        assert trial.tensor("labels").value(step, worker=worker).tolist() == found.tolist()
        predictions = booster.predict(xgboost.DMatrix(values))
        saved = trial.tensor("predictions").value(step, worker=worker)
        np.testing.assert_allclose(saved, predictions, rtol=rtol)
        shap = booster.predict(xgboost.DMatrix(sampled(values)), pred_contribs=True)
        saved = trial.tensor("full_shap").value(step, worker=worker)
        assert saved.shape == (SAMPLES, values.shape[1] + 1)
        np.testing.assert_allclose(saved, shap, rtol=rtol, atol=1e-6 if rtol else 0)
        means = shap.mean(axis=0, dtype=np.float64)
        for place in range(values.shape[1]):
            saved = trial.tensor(f"average_shap/f{place}").value(step, worker=worker)
            np.testing.assert_allclose(saved, means[place : place + 1], rtol=1e-4, atol=1e-6)


def workers_that_wrote(out_dir: Path) -> set[str]:
    found = set()
    for path in out_dir.rglob("*"):
        if path.suffix in (".tfevents", ".parquet") or path.name.endswith("_collections.json"):
            found.add(next(worker for worker in BOTH if worker in path.name))
    return found


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    return Jobs(
        tmp_path_factory.mktemp("workers"),
        (
            *("bare", "one", "all", "early_hook", "named"),
            *("hook_on_the_first", "hook_on_the_second"),
            *("quantile_bare", "quantile_one", "quantile_all", "csv_one", "csv_all"),
            *("data_on_the_first", "csv_on_the_second", "closed_inside", "goes_on", "early_stop"),
            *("fails_on_the_second", "columns_bare", "columns_one", "columns_all", "unclosed"),
            "second_closes_first",
        ),
        # They take seconds, in which there is little else to do.
        ("stopped_by_a_rule",),
        ("stopped_by_a_request",),
    )


# ---- who saves


def test_by_default_only_the_first_worker_saves(jobs: Jobs) -> None:
    assert_same_models(jobs, "one", "bare")
    assert workers_that_wrote(jobs.path("one") / "run") == {"worker_0"}
    trial = jobs.trial("one")
    assert (trial.num_workers, trial.loaded_all_steps) == (1, True)
    assert trial.steps() == list(range(ROUNDS))
    assert_metrics(jobs, "one", ["worker_0"])
    (booster, _) = jobs.models("one")
    assert_model_of(trial, booster, ["worker_0"])
    assert_data_of(trial, booster, [0])
    assert jobs.log("one", 0) == jobs.log("one", 1) == []


def test_all_workers_save_what_they_have(jobs: Jobs) -> None:
    assert_same_models(jobs, "all", "bare")
    trial = jobs.trial("all")
    assert (trial.num_workers, trial.loaded_all_steps) == (2, True)
    assert trial.steps() == list(range(ROUNDS))
    assert_metrics(jobs, "all", BOTH)
    (booster, _) = jobs.models("all")
    assert_model_of(trial, booster, BOTH)
    assert_data_of(trial, booster, [0, 1])
    for worker in BOTH:
        for name, value in HYPERPARAMETERS.items():
            assert trial.tensor(f"hyperparameters/{name}").value(0, worker=worker) == [value]
    assert not np.array_equal(rows_of(0)[1], rows_of(1)[1])
    assert trial.tensor("predictions").workers(2) == BOTH
    assert jobs.log("all", 0) == jobs.log("all", 1) == []


@pytest.mark.parametrize("name", ["one", "all", "early_hook", "named", "closed_inside", "unclosed"])
def test_the_end_of_a_run_is_marked_once(jobs: Jobs, name: str) -> None:
    run = jobs.path(name) / "run"
    assert [each.name for each in run.iterdir() if each.is_file()] == [END_KEY]
    assert jobs.trial(name).loaded_all_steps


def test_first_worker_writes_the_end_marker_in_any_order_of_closing(jobs: Jobs) -> None:
    assert_same_models(jobs, "second_closes_first", "bare")
    seen = jobs.path("second_closes_first") / "seen.json"
    assert json.loads(seen.read_text(encoding="utf-8")) == ["closed", False]
    assert jobs.trial("second_closes_first").loaded_all_steps
    assert_metrics(jobs, "second_closes_first", BOTH)


def test_hook_created_before_the_collective_is_connected(jobs: Jobs) -> None:
    assert_same_models(jobs, "early_hook", "bare")
    assert_metrics(jobs, "early_hook", BOTH)
    trial = jobs.trial("early_hook")
    assert trial.num_workers == 2
    (booster, _) = jobs.models("early_hook")
    assert_model_of(trial, booster, BOTH)
    assert_data_of(trial, booster, [0, 1])


def test_workers_may_have_names(jobs: Jobs) -> None:
    assert_same_models(jobs, "named", "bare")
    assert_metrics(jobs, "named", ["left", "right/2"])


@pytest.mark.parametrize(("name", "saves"), [("hook_on_the_first", True),
                                             ("hook_on_the_second", False)])  # fmt: skip
def test_a_hook_on_one_worker_only(jobs: Jobs, name: str, saves: bool) -> None:
    assert_same_models(jobs, name, "bare")
    run = jobs.path(name) / "run"
    assert workers_that_wrote(run) == ({"worker_0"} if saves else set())
    assert (run / END_KEY).exists() == saves
    if saves:
        assert_metrics(jobs, name, ["worker_0"])


@pytest.mark.parametrize("name", ["closed_inside", "unclosed"])
def test_a_hook_closed_while_the_workers_are_connected_or_never(jobs: Jobs, name: str) -> None:
    assert_same_models(jobs, name, "bare")
    assert_metrics(jobs, name, BOTH)


# ---- what it takes to explain a model


@pytest.mark.parametrize(("name", "ranks"), [("quantile_one", [0]), ("quantile_all", [0, 1])])
def test_quantiles_of_more_rows_than_are_sampled(jobs: Jobs, name: str, ranks: list[int]) -> None:
    assert ROWS > SAMPLES
    assert_same_models(jobs, name, "quantile_bare")
    trial = jobs.trial(name)
    assert trial.steps() == list(range(ROUNDS))
    (booster, _) = jobs.models(name)
    assert_data_of(trial, booster, ranks, rtol=1e-5)
    assert jobs.log(name, 0) == jobs.log(name, 1) == []


@pytest.mark.parametrize(("name", "ranks"), [("csv_one", [0]), ("csv_all", [0, 1])])
def test_data_in_files(jobs: Jobs, name: str, ranks: list[int]) -> None:
    assert_same_models(jobs, name, "bare")
    trial = jobs.trial(name)
    assert trial.steps() == list(range(ROUNDS))
    (booster, _) = jobs.models(name)
    assert_data_of(trial, booster, ranks)
    assert jobs.log(name, 0) == jobs.log(name, 1) == []


@pytest.mark.parametrize(("name", "rank"), [("data_on_the_first", 0), ("csv_on_the_second", 1)])
def test_data_on_one_worker_only(jobs: Jobs, name: str, rank: int) -> None:
    assert_same_models(jobs, name, "bare")
    assert_metrics(jobs, name, BOTH)
    trial = jobs.trial(name)
    (booster, _) = jobs.models(name)
    assert_data_of(trial, booster, [rank])
    for tensor in ("labels", "predictions", "full_shap", "average_shap/f0"):
        assert trial.tensor(tensor).workers(2) == [f"worker_{rank}"]
    assert jobs.log(name, rank) == []
    said = [line.split(" cannot be saved: ")[0] for line in jobs.log(name, 1 - rank)]
    assert sorted(said) == ["average_shap", "full_shap", "labels", "predictions"]


# ---- longer lives


def test_resumed_training_continues_the_steps(jobs: Jobs) -> None:
    assert_metrics(jobs, "goes_on", BOTH, range(ROUNDS, 2 * ROUNDS))
    trial = jobs.trial("goes_on")
    assert trial.steps() == list(range(2 * ROUNDS))
    (booster, other) = jobs.models("goes_on")
    assert booster.save_raw("json") == other.save_raw("json")
    assert_model_of(trial, booster, BOTH, 2 * ROUNDS - 1)


def test_all_workers_save_the_last_round_before_an_early_stop(jobs: Jobs) -> None:
    told = jobs.told("early_stop")
    assert told[0]["rounds"] == told[1]["rounds"] < 200
    steps = range(told[0]["rounds"])
    assert_metrics(jobs, "early_stop", BOTH, steps)
    assert jobs.trial("early_stop").steps() == list(steps)


def test_worker_that_cannot_save_continues_training(jobs: Jobs) -> None:
    assert_same_models(jobs, "fails_on_the_second", "bare")
    assert not [line for line in jobs.log("fails_on_the_second", 0) if "saving has stopped" in line]
    said = [line for line in jobs.log("fails_on_the_second", 1) if "saving has stopped" in line]
    assert len(said) == 1
    trial = jobs.trial("fails_on_the_second")
    tensor = trial.tensor("train-logloss")
    found = {step: tensor.workers(step) for step in tensor.steps(show_incomplete_steps=True)}
    assert found[0] == BOTH
    assert found[ROUNDS - 1] == ["worker_0"]


# ---- data split by columns


@pytest.mark.parametrize(
    ("name", "workers"), [("columns_one", ["worker_0"]), ("columns_all", BOTH)]
)
def test_column_split_data_has_no_predictions_or_shap_values(
    jobs: Jobs, name: str, workers: list[str]
) -> None:
    assert_same_models(jobs, name, "columns_bare")
    assert_metrics(jobs, name, workers)
    trial = jobs.trial(name)
    (booster, _) = jobs.models(name)
    assert_model_of(trial, booster, workers)
    assert not [each for each in trial.tensor_names() if "shap" in each or each == "predictions"]
    for rank in range(len(workers)):
        said = [line.split(" cannot be saved: ") for line in jobs.log(name, rank)]
        assert {"average_shap", "full_shap", "predictions"} <= {what for what, _ in said}
        assert len(said) == len({what for what, _ in said})
        assert all("columns" in why for _, why in said)


# ---- stopping


@pytest.mark.parametrize("name", ["stopped_by_a_rule", "stopped_by_a_request"])
def test_workers_stop_before_the_same_round(jobs: Jobs, name: str) -> None:
    first, second = jobs.told(name)
    assert first == second
    assert first["rounds"] == len(first["metrics"]["train"]["logloss"]) > 0
    booster, other = jobs.models(name)
    assert booster.save_raw("json") == other.save_raw("json")
    assert booster.predict(own_matrix(0)).shape == (ROWS,)
    trial = jobs.trial(name)
    assert trial.loaded_all_steps
    workers = BOTH if name == "stopped_by_a_rule" else ["worker_0"]
    assert trial.workers() == workers
    tensor = trial.tensor("train-logloss")
    assert tensor.steps()[-1] == first["rounds"] - 1
    for worker in workers:
        values = [float(each[0]) for each in tensor.values(worker=worker).values()]
        assert values == first["metrics"]["train"]["logloss"]
    reason = "levels deep" if name == "stopped_by_a_rule" else "by hand"
    for rank in range(WORLD):
        said = [line for line in jobs.log(name, rank) if "training stops after step" in line]
        assert len(said) == 1
        assert f"step {first['rounds'] - 1}: " in said[0]
        assert reason in said[0]
