"""What the hook costs a training with XGBoost: one with it and one without, round by round."""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost
from xgboost.callback import CallbackContainer

from benchmarks.figure import Figure, seconds
from smdebug.xgboost import Hook

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS, ROWS, FEATURES = 200, 50_000, 30
REPETITIONS = 7
PARAMS = {"objective": "binary:logistic", "nthread": 1}

_EVERY_10 = {"save_interval": 10}
SETUPS: dict[str, tuple[float | None, dict[str, Any]]] = {
    "metrics every round": (1.02, {"save_config": {"save_interval": 1}}),
    "metrics and feature importance every 10 rounds": (
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


def measure(folder: Path, peer: str) -> list[Figure]:
    validation = _matrix(ROWS // 5, 1)
    evals = [(_matrix(ROWS, 0), "train"), (validation, "validation")]
    # The first hook of a process loads pyarrow.
    _ratio(evals, {}, rounds=10)
    # Whoever else uses the machine is in the figures: ratios of 1.01 need one at rest.
    print(f"    XGBoost (load {os.getloadavg()[0]:.1f})", flush=True)
    figures = []
    for setup, (limit, options) in SETUPS.items():
        options = {"validation_data": validation, **options}
        found = [_ratio(evals, options) for _ in range(REPETITIONS)]
        what = f"XGBoost, {ROUNDS} rounds x {ROWS:,} x {FEATURES}, {setup}"
        target = "" if limit is None else f"<= {limit:g}x"
        ratios = [ratio for ratio, _ in found]
        figures.append(Figure(f"{what}: our hook over none", target, ratios, "x", limit, digits=4))
        both = [1000 * each for _, each in found]
        figures.append(Figure(f"{what}: making the hook and closing it", "", both, "ms"))
    figures.append(_shap_figure(evals[0][0]))
    return figures


def _ratio(evals: list[Any], options: dict[str, Any], rounds: int = ROUNDS) -> tuple[float, float]:
    """The time of a training with the hook over that of one without, their rounds in turn.

    Returns:
        That ratio, and the seconds before and after the training that the hook takes.
    """
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        hook = Hook(f"{place}/run", **options)
        apart = time.perf_counter() - began
        trainings = {"alone": Training(evals, []), "hooked": Training(evals, [hook])}
        times = {name: seconds(training.begin) for name, training in trainings.items()}
        for number in range(rounds):
            # Each goes first every other time.
            for name in sorted(trainings, reverse=number % 2 == 1):
                times[name] += seconds(partial(trainings[name].round, number))
        for name, training in trainings.items():
            times[name] += seconds(training.end)
        apart += seconds(hook.close)
    return times["hooked"] / times["alone"], apart


def _shap_figure(data: Any) -> Figure:
    """How long SHAP values of one round take, for whoever wants to save them."""
    booster = xgboost.train(PARAMS, data, ROUNDS)
    sample = data.slice(np.linspace(0, ROWS - 1, 10_000).astype(np.int64))
    took = [seconds(lambda: booster.predict(sample, pred_contribs=True)) for _ in range(2)]
    return Figure(f"XGBoost's own SHAP values of 10,000 rows, {ROUNDS} trees", "", took, "s")


def _matrix(rows: int, seed: int) -> Any:
    random = np.random.default_rng(seed)
    values = random.normal(size=(rows, FEATURES)).astype(np.float32)
    score = values[:, :6].sum(axis=1) + random.normal(size=rows)
    return xgboost.DMatrix(values, score > 0)
