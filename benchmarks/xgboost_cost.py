"""What the hook costs a training with XGBoost: one with it and one without, round by round."""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost
from xgboost.callback import CallbackContainer

from benchmarks.bench import seconds
from benchmarks.figure import FLOOR, Figure
from smdebug.xgboost import Hook

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

ROUNDS, ROWS, FEATURES = 200, 50_000, 30
REPETITIONS, PLAIN_REPETITIONS = 5, 3
PARAMS = {"objective": "binary:logistic", "nthread": 1}

METRICS = "metrics every round"
IMPORTANCE = "metrics and feature importance every 10 rounds"
IMPORTANCES = ("weight", "gain", "cover", "total_gain", "total_cover")
_EVERY_10 = {"save_interval": 10}
SETUPS: dict[str, tuple[float | None, dict[str, Any]]] = {
    METRICS: (1.02, {"save_config": {"save_interval": 1}}),
    IMPORTANCE: (
        1.05,
        {"save_config": _EVERY_10, "include_collections": ["feature_importance"]},
    ),
    # Nothing is promised of these; trees are cheap, predictions nearly so.
    "everything but SHAP values every 10 rounds": (
        None,
        {
            "save_config": _EVERY_10,
            "include_collections": ["feature_importance", "trees", "labels", "predictions"],
        },
    ),
}


class Training:
    """A training that goes on round by round, in the way of `xgboost.train`.

    Args:
        evals: the data it learns from, and that it is evaluated on.
        callbacks: who else takes part.
    """

    def __init__(self, evals: list[Any], callbacks: list[Any]) -> None:
        self._evals = evals
        self._data = evals[0][0]
        self._callbacks = CallbackContainer(callbacks, None)

    def begin(self) -> None:
        booster = xgboost.Booster(PARAMS, [data for data, _ in self._evals])
        self._booster = self._callbacks.before_training(booster)

    def round(self, number: int) -> None:
        self._callbacks.before_iteration(self._booster, number, self._data, self._evals)
        self._booster.update(self._data, number)
        self._callbacks.after_iteration(self._booster, number, self._data, self._evals)

    def end(self) -> None:
        self._booster = self._callbacks.after_training(self._booster)


class Plain(xgboost.callback.TrainingCallback):
    """The floor: a round's metrics, and every 10 rounds importances, as lines of a file.

    Args:
        path: the file.
        importances: whether those are wanted.
    """

    def __init__(self, path: Path, importances: bool) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._importances = importances

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if self._importances and epoch % 10:
            return False
        last = {name: logs["logloss"][-1] for name, logs in evals_log.items()}
        self._file.write(f"{epoch} {last}\n")
        if self._importances:
            for kind in IMPORTANCES:
                self._file.write(f"{epoch} {model.get_score(importance_type=kind)}\n")
        return False

    def close(self) -> None:
        self._file.close()


def measure(bench: Bench) -> list[Figure]:
    validation = _matrix(ROWS // 5, 1)
    evals = [(_matrix(ROWS, 0), "train"), (validation, "validation")]
    # The first hook of a process loads pyarrow.
    _ratio(evals, partial(_hook, {}), rounds=10)
    rounds = bench.times(ROUNDS)
    # Whoever else uses the machine is in the figures: ratios of 1.01 need one at rest.
    print(f"    XGBoost (load {os.getloadavg()[0]:.1f})", flush=True)
    figures = []
    for setup, (limit, options) in SETUPS.items():
        options = {"validation_data": validation, **options}
        found = [
            _ratio(evals, partial(_hook, options), rounds) for _ in range(bench.times(REPETITIONS))
        ]
        what = f"XGBoost, {ROUNDS} rounds x {ROWS:,} x {FEATURES}: {setup}"
        target = "" if limit is None else f"<= {limit:g} x"
        ratios, both = [ratio for ratio, _ in found], [1000 * each for _, each in found]
        peers = _floor(evals, setup, rounds, bench.times(PLAIN_REPETITIONS))
        figures.append(Figure(what, target, ratios, "x", limit, digits=4, peers=peers))
        figures.append(Figure(f"{what}; making the hook and closing it", "", both, "ms"))
    figures.append(_shap_figure(evals[0][0], rounds))
    return figures


def _hook(options: dict[str, Any], place: Path) -> Hook:
    return Hook(str(place / "run"), **options)


def _floor(evals: list[Any], setup: str, rounds: int, times: int) -> dict[str, list[float] | str]:
    """The same by hand, where that is a few lines."""
    if setup not in (METRICS, IMPORTANCE):
        return {}

    def observe(place: Path) -> Plain:
        return Plain(place / "lines.txt", setup == IMPORTANCE)

    return {FLOOR: [_ratio(evals, observe, rounds)[0] for _ in range(times)]}


def _ratio(evals: list[Any], observe: Callable[[Path], Any], rounds: int) -> tuple[float, float]:
    """The time of an observed training over that of one alone, their rounds in turn.

    Returns:
        That ratio, and the seconds before and after the training that the observer takes.
    """
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        observer = observe(Path(place))
        apart = time.perf_counter() - began
        trainings = {"alone": Training(evals, []), "observed": Training(evals, [observer])}
        times = {name: seconds(training.begin) for name, training in trainings.items()}
        for number in range(rounds):
            # Each goes first every other time.
            for name in sorted(trainings, reverse=number % 2 == 1):
                times[name] += seconds(partial(trainings[name].round, number))
        for name, training in trainings.items():
            times[name] += seconds(training.end)
        apart += seconds(observer.close)
    return times["observed"] / times["alone"], apart


def _shap_figure(data: Any, rounds: int) -> Figure:
    """How long SHAP values of one round take, for whoever wants to save them."""
    booster = xgboost.train(PARAMS, data, rounds)
    sample = data.slice(np.linspace(0, ROWS - 1, 10_000).astype(np.int64))
    took = [seconds(lambda: booster.predict(sample, pred_contribs=True))]
    return Figure(f"XGBoost's own SHAP values of 10,000 rows, {ROUNDS} trees", "", took, "s")


def _matrix(rows: int, seed: int) -> Any:
    random = np.random.default_rng(seed)
    values = random.normal(size=(rows, FEATURES)).astype(np.float32)
    score = values[:, :6].sum(axis=1) + random.normal(size=rows)
    return xgboost.DMatrix(values, score > 0)
