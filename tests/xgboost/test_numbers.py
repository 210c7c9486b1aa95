"""What is saved of a round is what XGBoost itself says of the model after that round."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xgboost
from tests.xgboost.data import BINARY, FEATURES, features, labels, matrix, train
from xgboost.callback import EarlyStopping, TrainingCallback

import smdebug.xgboost as smd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from smdebug.reductions import Array
    from smdebug.trials import Trial

EVERY = smd.SaveConfig(save_interval=1)
KINDS = ["weight", "gain", "cover", "total_gain", "total_cover"]
REGRESSION = {**BINARY, "objective": "reg:squarederror"}
CLASSES = {**BINARY, "objective": "multi:softprob", "num_class": 3}
RANKING = {**BINARY, "objective": "rank:ndcg"}
ROWS = 120
QUERIES = np.repeat(np.arange(12), 10)


class Recorder(TrainingCallback):
    """Keeps the model as it was after every round: dart and updates change what went before."""

    def __init__(self) -> None:
        self.models: list[Any] = []

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        kept = xgboost.Booster()
        kept.load_model(model.save_raw())
        # What is kept of a model does not have them when they were not given to it.
        kept.feature_names, kept.feature_types = model.feature_names, model.feature_types
        self.models.append(kept)
        return False


@dataclass
class Run:
    """A training run: what was saved, and what XGBoost returns."""

    trial: Trial
    booster: Any
    models: list[Any]
    result: dict[str, Any]

    def value(self, name: str, step: int) -> Array:
        found: Array = self.trial.tensor(name).value(step)
        return found

    def at(self, step: int, prefix: str) -> dict[str, Array]:
        """The tensors of a step by what follows a prefix in their names."""
        names = self.trial.tensor_names(step=step, regex=f"^{prefix}")
        return {name.removeprefix(prefix): self.value(name, step) for name in names}


def save(
    out_dir: Path,
    params: dict[str, Any] = BINARY,
    data: Any = None,
    rounds: int = 4,
    hook_options: dict[str, Any] | None = None,
    **options: Any,
) -> Run:
    """Trains, and saves everything at every round."""
    data = matrix(ROWS) if data is None else data
    given = {"train_data": data, "validation_data": data, **(hook_options or {})}
    hook = smd.Hook(out_dir, save_all=True, save_config=EVERY, hyperparameters=params, **given)
    recorder, result = Recorder(), dict[str, Any]()
    booster = train(
        hook, rounds, params, data, callbacks=[recorder], evals_result=result, **options
    )
    hook.close()
    return Run(smd.create_trial(out_dir), booster, recorder.models, result)


# ---- what XGBoost says


def importances(model: Any, kind: str) -> dict[str, float]:
    """What `get_score` says, as parts of the whole."""
    scores = model.get_score(importance_type=kind)
    return {name: score / math.fsum(scores.values()) for name, score in scores.items()}


def table(model: Any, before: int) -> Any:
    """The nodes of the trees from a number on, with what is missing as text."""
    frame = model.trees_to_dataframe()
    frame = frame[frame["Tree"] >= before].sort_values(["Tree", "Node"], kind="stable")
    for column in ("Yes", "No", "Missing"):
        frame[column] = [each if isinstance(each, str) else "nan" for each in frame[column]]
    return frame


def trees_in(model: Any) -> int:
    return len(model.get_dump())


# ---- comparing


def check_metrics(run: Run, first: int = 0) -> None:
    numbers = {
        f"{data}-{metric}": history
        for data, metrics in run.result.items()
        for metric, history in metrics.items()
    }
    assert numbers
    assert run.trial.tensor_names(collection="metrics") == sorted(numbers)
    for name, history in numbers.items():
        steps = list(range(first, first + len(history)))
        assert run.trial.tensor(name).steps() == steps, name
        for step, number in zip(steps, history, strict=True):
            found = run.value(name, step)
            assert (found.dtype, found.shape) == (np.dtype(np.float64), (1,)), name
            np.testing.assert_array_equal(found, [number], err_msg=name)


def check_importances(run: Run, model: Any, step: int) -> None:
    for kind in KINDS:
        expected = importances(model, kind)
        found = run.at(step, f"feature_importance/{kind}/")
        assert sorted(found) == sorted(expected), (kind, step)
        for feature, number in expected.items():
            assert found[feature].shape == (1,)
            np.testing.assert_allclose(found[feature], [number], rtol=1e-12)


def check_predictions(run: Run, model: Any, data: Any, step: int) -> None:
    expected = model.predict(data)
    found = run.value("predictions", step)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)


def check_shap(run: Run, model: Any, data: Any, step: int, rows: Array | None = None) -> None:
    expected = model.predict(data, pred_contribs=True)
    expected = expected if rows is None else expected[rows]
    columns = [*(data.feature_names or [f"f{each}" for each in range(data.num_col())]), "bias"]
    whole = run.value("full_shap", step)
    assert whole.dtype == expected.dtype
    np.testing.assert_array_equal(whole, expected)
    full, means = run.at(step, "full_shap/"), run.at(step, "average_shap/")
    assert sorted(full) == sorted(means) == sorted(columns)
    for place, column in enumerate(columns):
        own = expected[..., place]
        np.testing.assert_array_equal(full[column], own, err_msg=column)
        mean = np.atleast_1d(own.astype(np.float64).mean(axis=0))
        assert means[column].shape == mean.shape
        np.testing.assert_allclose(means[column], mean, rtol=1e-6, atol=1e-9, err_msg=column)


def check_trees(run: Run, model: Any, before: int, step: int) -> None:
    expected, found = table(model, before), run.at(step, "trees/")
    assert sorted(found) == sorted(expected.columns)
    assert set(found["Tree"].tolist()) == set(range(before, trees_in(model)))
    for column in ("Tree", "Node", "ID", "Feature", "Yes", "No", "Missing"):
        assert found[column].tolist() == expected[column].tolist(), column
    for column in ("Split", "Gain", "Cover"):
        assert found[column].dtype == np.float64
        # XGBoost has 32 bits of them, and writes as many digits as those need.
        own = expected[column].to_numpy(np.float32)
        np.testing.assert_array_equal(found[column].astype(np.float32), own, err_msg=column)
    categories = [
        json.loads(each) if each != "nan" else None for each in found["Category"].tolist()
    ]
    assert categories == [
        [int(code) for code in each] if isinstance(each, list) else None
        for each in expected["Category"].tolist()
    ]


def check_all(run: Run, data: Any, first: int = 0) -> None:
    """Compares every round with the model of that round."""
    assert run.trial.steps() == list(range(first, first + len(run.models)))
    check_metrics(run, first)
    before = trees_in(run.booster[:first]) if first else 0
    for step, model in enumerate(run.models, first):
        check_importances(run, model, step)
        check_predictions(run, model, data, step)
        check_shap(run, model, data, step)
        check_trees(run, model, before, step)
        before = trees_in(model)
        if data.get_label().size:
            np.testing.assert_array_equal(run.value("labels", step), data.get_label())


# ---- objectives


def regression_matrix(kind: Any = xgboost.DMatrix, **options: Any) -> Any:
    values = features(ROWS)
    return kind(values, values[:, 0] - 2 * values[:, 3] + values[:, 1] ** 2, **options)


def positive(values: Array) -> Array:
    found: Array = np.exp(values[:, 0] / 2 + values[:, 2] / 3)
    return found


def ranking_matrix(kind: Any = xgboost.DMatrix, **options: Any) -> Any:
    values = features(ROWS)
    return kind(values, labels(values, 4), qid=QUERIES, **options)


def two_targets() -> Any:
    values = features(ROWS)
    return xgboost.DMatrix(values, np.stack([values[:, 0] * 2, values[:, 1] - values[:, 2]], 1))


def counts() -> Any:
    values = features(ROWS)
    return xgboost.DMatrix(values, np.round(positive(values)))


def ages() -> Any:
    """Survival: below zero is known to have been alive until then."""
    values = features(ROWS)
    known = np.where(np.arange(ROWS) % 4 == 0, -1, 1)
    return xgboost.DMatrix(values, positive(values) * known)


def intervals() -> Any:
    values = features(ROWS)
    lower = positive(values)
    upper = np.where(np.arange(ROWS) % 4 == 0, np.inf, lower)
    return xgboost.DMatrix(values, label_lower_bound=lower, label_upper_bound=upper)


OBJECTIVES: list[tuple[str, dict[str, Any], Callable[[], Any]]] = [
    ("binary", BINARY, lambda: matrix(ROWS)),
    ("binary margins", {**BINARY, "objective": "binary:logitraw"}, lambda: matrix(ROWS)),
    ("hinge", {**BINARY, "objective": "binary:hinge"}, lambda: matrix(ROWS)),
    ("regression", REGRESSION, regression_matrix),
    ("absolute error", {**BINARY, "objective": "reg:absoluteerror"}, regression_matrix),
    ("quantiles", {**BINARY, "objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5]},
     regression_matrix),
    ("probabilities", CLASSES, lambda: matrix(ROWS, classes=3)),
    ("classes", {**CLASSES, "objective": "multi:softmax"}, lambda: matrix(ROWS, classes=3)),
    ("ranking", {**RANKING, "eval_metric": ["ndcg", "ndcg@3", "ndcg@3-", "ndcg-"]},
     ranking_matrix),
    ("pairs", {**RANKING, "objective": "rank:pairwise"}, ranking_matrix),
    ("targets", REGRESSION, two_targets),
    ("counts", {**BINARY, "objective": "count:poisson"}, counts),
    ("gamma", {**BINARY, "objective": "reg:gamma", "eval_metric": ["gamma-deviance", "mape"]},
     lambda: xgboost.DMatrix(features(ROWS), positive(features(ROWS)))),
    ("tweedie", {**BINARY, "objective": "reg:tweedie", "tweedie_variance_power": 1.3}, counts),
    ("cox", {**BINARY, "objective": "survival:cox"}, ages),
    ("aft", {**BINARY, "objective": "survival:aft"}, intervals),
]  # fmt: skip


@pytest.mark.parametrize(
    ("params", "data"), [each[1:] for each in OBJECTIVES], ids=[each[0] for each in OBJECTIVES]
)
def test_everything_of_every_round_of_an_objective(
    tmp_path: Path, params: dict[str, Any], data: Callable[[], Any]
) -> None:
    made = data()
    run = save(tmp_path, params, made)
    check_all(run, made)
    assert run.trial.has_tensor("labels") == bool(made.get_label().size)


def test_model_sliced_to_a_round_gives_the_same(tmp_path: Path) -> None:
    data = matrix(ROWS, classes=3)
    run = save(tmp_path, CLASSES, data, 5)
    for step in run.trial.steps():
        cut = run.booster[: step + 1]
        check_importances(run, cut, step)
        check_predictions(run, cut, data, step)
        check_shap(run, cut, data, step)
        check_trees(run, cut, 3 * step, step)


def test_one_tree_for_several_targets_is_saved_as_far_as_xgboost_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = two_targets()
    run = save(tmp_path, {**REGRESSION, "multi_strategy": "multi_output_tree"}, data)
    check_metrics(run)
    for step, model in enumerate(run.models):
        check_predictions(run, model, data, step)
        check_importances(run, model, step)
        np.testing.assert_array_equal(run.value("labels", step), data.get_label())
    assert run.value("labels", 0).shape == (ROWS, 2)
    try:
        expected = run.booster.predict(data, pred_contribs=True)
    except xgboost.core.XGBoostError:
        assert not run.trial.has_tensor("full_shap")
        assert "full_shap cannot be saved" in caplog.text
    else:
        np.testing.assert_array_equal(run.value("full_shap", 3), expected)


def test_a_custom_objective_predicts_margins(tmp_path: Path) -> None:
    def objective(margins: Array, data: Any) -> tuple[Array, Array]:
        chances = 1 / (1 + np.exp(-margins))
        return chances - data.get_label(), chances * (1 - chances)

    data = matrix(ROWS)
    params = {"max_depth": 3, "nthread": 1, "base_score": 0.0}
    run = save(tmp_path, params, data, obj=objective)
    check_all(run, data)
    assert run.value("predictions", 3).min() < 0


def test_a_custom_metric_is_saved_as_it_is_returned(tmp_path: Path) -> None:
    told = []

    def off_by(predictions: Array, data: Any) -> tuple[str, float]:
        told.append(float(np.abs(predictions - data.get_label()).max()))
        return "off_by", told[-1]

    run = save(tmp_path, custom_metric=off_by)
    check_metrics(run)
    assert run.trial.tensor_names(collection="metrics") == ["train-logloss", "train-off_by"]
    found = [float(run.value("train-off_by", step)[0]) for step in range(4)]
    np.testing.assert_allclose(found, told, rtol=1e-5)


def test_a_custom_metric_may_return_several(tmp_path: Path) -> None:
    def ends(predictions: Array, data: Any) -> list[tuple[str, float]]:
        return [("lowest", float(predictions.min())), ("highest", float(predictions.max()))]

    run = save(tmp_path, custom_metric=ends)
    check_metrics(run)
    assert run.trial.has_tensor("train-lowest")
    assert run.trial.has_tensor("train-highest")


def test_a_metric_that_is_not_computed_at_a_round_is_not_saved_at_it(tmp_path: Path) -> None:
    rounds = iter(range(6))

    def metric(predictions: Array, data: Any) -> list[tuple[str, float]]:
        number = next(rounds)
        return [("slow", float(number))] if number % 3 == 0 else []

    run = save(tmp_path, rounds=6, custom_metric=metric)
    assert run.result["train"]["slow"] == [0, 3]
    found = run.trial.tensor("train-slow")
    assert {step: float(found.value(step)[0]) for step in found.steps()} == {0: 0, 3: 3}


def test_metric_that_appears_later_is_saved_from_then_on(tmp_path: Path) -> None:
    rounds = iter(range(5))

    def metric(predictions: Array, data: Any) -> list[tuple[str, float]]:
        number = next(rounds)
        return [("late", float(number))] if number >= 2 else []

    run = save(tmp_path, rounds=5, custom_metric=metric)
    found = run.trial.tensor("train-late")
    assert {step: float(found.value(step)[0]) for step in found.steps()} == {2: 2, 3: 3, 4: 4}


def test_metrics_of_several_data_sets_and_unusual_names(tmp_path: Path) -> None:
    data, other = matrix(ROWS), matrix(60, seed=3)
    metrics = ["error@0.3", "error", "auc", "aucpr", "logloss", "rmse", "map@5-", "ndcg-"]
    run = save(
        tmp_path, {**BINARY, "eval_metric": metrics}, data,
        evals=[(data, "train"), (other, "validation_0"), (other, "held_out.2")],
    )  # fmt: skip
    check_metrics(run)
    assert len(run.trial.tensor_names(collection="metrics")) == 3 * len(metrics)


def test_metrics_that_are_not_finite_are_saved_as_they_are(tmp_path: Path) -> None:
    numbers = iter([math.nan, math.inf, -math.inf, 1e300])

    def metric(predictions: Array, data: Any) -> tuple[str, float]:
        return "odd", next(numbers)

    run = save(tmp_path, custom_metric=metric)
    found = [float(run.value("train-odd", step)[0]) for step in range(4)]
    assert math.isnan(found[0])
    assert found[1:] == [math.inf, -math.inf, 1e300]


@pytest.mark.parametrize("watched", ["train-odd", "^trees/Gain$"])
def test_round_of_an_observed_non_finite_tensor_is_saved(tmp_path: Path, watched: str) -> None:
    data = matrix(ROWS)
    numbers = iter([1, 2, math.nan, 3, math.inf, 4])

    def metric(predictions: Array, data: Any) -> tuple[str, float]:
        return "odd", next(numbers)

    hook = smd.Hook(
        tmp_path, save_all=True, train_data=data, validation_data=data, hyperparameters=BINARY,
        save_config=smd.SaveConfig(save_interval=5, when_nan=[watched]),
    )  # fmt: skip
    recorder, result = Recorder(), dict[str, Any]()
    booster = train(
        hook, 6, data=data, callbacks=[recorder], evals_result=result, custom_metric=metric
    )
    hook.close()
    run = Run(smd.create_trial(tmp_path), booster, recorder.models, result)
    expected = [0, 2, 4, 5] if watched == "train-odd" else [0, 5]
    assert run.trial.tensor("train-odd").steps() == expected
    for step in expected:
        check_importances(run, run.models[step], step)
        check_predictions(run, run.models[step], data, step)
        check_shap(run, run.models[step], data, step)
        check_trees(run, run.models[step], step, step)
        for metric_name, history in result["train"].items():
            np.testing.assert_array_equal(run.value(f"train-{metric_name}", step), [history[step]])


# ---- boosters


def test_dart_drops_trees_and_every_round_is_what_it_was_then(tmp_path: Path) -> None:
    data = matrix(ROWS)
    params = {**BINARY, "booster": "dart", "rate_drop": 0.5, "one_drop": 1}
    run = save(tmp_path, params, data, 6)
    check_all(run, data)
    # The weights of trees have changed since: the model of now says something else of then.
    assert not np.array_equal(run.value("predictions", 2), run.booster[:3].predict(data))


def test_a_linear_model_has_all_but_trees(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = matrix(ROWS, classes=3)
    params = {
        **{"booster": "gblinear", "updater": "coord_descent", "nthread": 1},
        **{"objective": "multi:softprob", "num_class": 3},
    }
    run = save(tmp_path, params, data, 5)
    assert run.trial.steps() == [0, 1, 2, 3, 4]
    check_metrics(run)
    for step, model in enumerate(run.models):
        check_predictions(run, model, data, step)
        check_shap(run, model, data, step)
    assert run.trial.tensor_names(regex="^(trees|feature_importance)/") == []
    assert caplog.text.count("gblinear has no trees") == 2


def test_a_forest_in_every_round(tmp_path: Path) -> None:
    data = matrix(ROWS, classes=3)
    params = {**CLASSES, "num_parallel_tree": 3, "subsample": 0.7, "colsample_bynode": 0.6}
    run = save(tmp_path, params, data, 3)
    check_all(run, data)
    assert np.unique(run.value("trees/Tree", 2)).tolist() == list(range(18, 27))


def test_a_random_forest_is_one_round(tmp_path: Path) -> None:
    data = matrix(ROWS)
    params = {
        **BINARY,
        **{"num_parallel_tree": 7, "subsample": 0.8, "colsample_bynode": 0.8, "learning_rate": 1},
    }
    run = save(tmp_path, params, data, 1)
    check_all(run, data)
    assert np.unique(run.value("trees/Tree", 0)).tolist() == list(range(7))


@pytest.mark.parametrize("method", ["exact", "approx", "hist"])
@pytest.mark.parametrize("gamma", [0, 2], ids=["", "pruned"])
def test_every_way_to_grow_trees(tmp_path: Path, method: str, gamma: float) -> None:
    data = matrix(ROWS)
    run = save(tmp_path, {**BINARY, "tree_method": method, "gamma": gamma, "max_depth": 6}, data)
    check_all(run, data)


def test_a_model_of_roots_only_has_trees_and_no_important_features(tmp_path: Path) -> None:
    data = matrix(ROWS)
    run = save(tmp_path, {**BINARY, "gamma": 1e9, "base_score": 0.2}, data)
    check_all(run, data)
    assert run.value("trees/Feature", 3).tolist() == ["Leaf"]
    assert run.trial.tensor_names(regex="^feature_importance/") == []


def test_deep_trees_that_grow_at_their_best_leaf(tmp_path: Path) -> None:
    values = features(400)
    data = xgboost.DMatrix(values, np.sin(7 * values).sum(axis=1))
    params = {
        **REGRESSION,
        **{"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 150, "min_child_weight": 0},
    }
    run = save(tmp_path, params, data, 2)
    check_all(run, data)
    assert len(run.value("trees/Node", 1)) == 299


def test_a_tree_may_be_as_deep_as_it_has_rows(tmp_path: Path) -> None:
    # As one-hot features make it: every split takes one row off the rest.
    rows = 600
    data = xgboost.DMatrix(np.eye(rows, dtype=np.float32), np.arange(rows) ** 1.5)
    params = {
        **{"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 0, "nthread": 1},
        **{"min_child_weight": 0, "lambda": 0, "tree_method": "hist"},
    }
    hook = smd.Hook(tmp_path, include_collections=["trees"], save_config=EVERY)
    booster = train(hook, 2, params, data)
    hook.close()
    trial = smd.create_trial(tmp_path)
    depth = max(map(int, re.findall(r'"depth": (\d+)', booster.get_dump(dump_format="json")[0])))
    assert depth > 500
    for step in range(2):
        expected = table(booster[: step + 1], step)
        for column in ("ID", "Feature", "Yes", "No", "Missing"):
            found = trial.tensor(f"trees/{column}").value(step)
            assert found.tolist() == expected[column].tolist()
        gains = trial.tensor("trees/Gain").value(step)
        np.testing.assert_allclose(gains, expected["Gain"].to_numpy(), rtol=1e-6)


def test_leaves_that_are_not_finite_are_saved_as_they_are(tmp_path: Path) -> None:
    def objective(predictions: Array, data: Any) -> tuple[Array, Array]:
        gradients = predictions - data.get_label()
        if abs(predictions).max() > 0.6:
            gradients[data.get_label() == 1] = -np.inf
        return gradients, np.ones_like(predictions)

    data = matrix(ROWS)
    run = save(tmp_path, {"max_depth": 1, "nthread": 1}, data, 4, obj=objective)
    dumps = run.booster.get_dump()
    assert any("inf" in text for text in dumps), dumps
    check_metrics(run)
    for step, text in enumerate(dumps):
        expected = [float(each) for each in re.findall(r"leaf=([^,\s]+)", text)]
        found = run.value("trees/Gain", step)[run.value("trees/Feature", step) == "Leaf"]
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_continued_training_continues_the_rounds(tmp_path: Path) -> None:
    data = matrix(ROWS, classes=3)
    before = train(None, 3, CLASSES, data)
    run = save(tmp_path, CLASSES, data, 4, xgb_model=before)
    check_all(run, data, first=3)
    assert run.trial.steps() == [3, 4, 5, 6]


def test_continued_model_may_have_fewer_trees_per_round(tmp_path: Path) -> None:
    data = matrix(ROWS)
    before = train(None, 3, {**BINARY, "num_parallel_tree": 2}, data)
    run = save(tmp_path, {**BINARY, "num_parallel_tree": 1}, data, 2, xgb_model=before)
    check_all(run, data, first=3)


@pytest.mark.filterwarnings("ignore:.*manually specified the `updater`")
@pytest.mark.parametrize("updater", ["refresh", "prune", "refresh,prune"])
@pytest.mark.parametrize("trees", [1, 2])
def test_updating_a_model_shows_it_as_far_as_it_has_been_updated(
    tmp_path: Path, updater: str, trees: int
) -> None:
    data, other = matrix(ROWS), matrix(ROWS, seed=5)
    params = {**BINARY, "num_parallel_tree": trees, "subsample": 0.8}
    before = train(None, 3, params, data)
    params |= {"process_type": "update", "updater": updater, "gamma": 3.0}
    run = save(tmp_path, params, other, 3, xgb_model=before)
    assert run.trial.steps() == [0, 1, 2]
    check_all(run, other)
    sizes = {len(model.trees_to_dataframe()) for model in (before, run.booster)}
    assert len(sizes) == (1 if updater == "refresh" else 2)


def test_the_round_that_early_stopping_ends_with_is_saved(tmp_path: Path) -> None:
    data, other = matrix(ROWS), matrix(60, seed=9)
    hook = smd.Hook(tmp_path, save_all=True, save_config=EVERY, validation_data=other)
    recorder, result = Recorder(), dict[str, Any]()
    # It comes before the hook, which is not called after the round that it ends with.
    stop = EarlyStopping(rounds=2, data_name="other", save_best=True)
    booster = train(
        hook, 60, {**BINARY, "learning_rate": 1.0}, data, evals=[(other, "other")],
        evals_result=result, callbacks=[recorder, stop],
    )  # fmt: skip
    hook.close()
    run = Run(smd.create_trial(tmp_path), booster, recorder.models, result)
    assert booster.num_boosted_rounds() < len(recorder.models) < 60
    assert run.trial.steps() == list(range(len(recorder.models)))
    check_metrics(run)
    for step, model in enumerate(recorder.models):
        check_importances(run, model, step)
        check_trees(run, model, step, step)
        check_predictions(run, model, other, step)


# ---- data


def with_gaps(values: Array) -> Array:
    gone = np.random.default_rng(7).random(values.shape) < 0.3
    return np.where(gone, np.nan, values).astype(np.float32)


def frame() -> tuple[Any, Array]:
    """Numbers, whole numbers and categories, some of them missing."""
    random, values = np.random.default_rng(4), features(200)
    names = np.array(["red", "green", "blue", "black", "white", "pink"])
    made = pd.DataFrame({"real": values[:, 0], "gaps": with_gaps(values)[:, 1]})
    kinds = random.integers(0, len(names), len(values))
    made["colour"] = pd.Categorical.from_codes(
        np.where(values[:, 4] > 1.5, -1, kinds), categories=names
    )
    made["whole"] = random.integers(0, 40, len(values))
    target = (np.isin(names[kinds], ["red", "black"]) ^ (values[:, 0] > 0)) | (made["whole"] > 30)
    return made, target.to_numpy().astype(np.float32)


@pytest.mark.parametrize("kind", [xgboost.DMatrix, xgboost.QuantileDMatrix])
@pytest.mark.parametrize("largest_one_hot", [1, 100], ids=["partitions", "one-hot"])
def test_categories(tmp_path: Path, kind: Any, largest_one_hot: int) -> None:
    values, target = frame()
    data = kind(values, target, enable_categorical=True)
    run = save(tmp_path, {**BINARY, "max_cat_to_onehot": largest_one_hot}, data)
    check_all(run, data)
    sets = [json.loads(each) for each in run.value("trees/Category", 0) if each != "nan"]
    assert sets
    assert all(len(each) == 1 for each in sets) == (largest_one_hot == 100)


@pytest.mark.parametrize("kind", [xgboost.DMatrix, xgboost.QuantileDMatrix])
@pytest.mark.parametrize("form", ["dense", "gaps", "sparse", "zeros are missing"])
def test_forms_of_data(tmp_path: Path, kind: Any, form: str) -> None:
    values = features(ROWS)
    target = labels(values)
    thin = np.where(np.abs(values) < 0.6, 0, values)
    data = {
        "dense": lambda: kind(values, target),
        "gaps": lambda: kind(with_gaps(values), target),
        "sparse": lambda: kind(scipy.sparse.csr_matrix(thin), target),
        "zeros are missing": lambda: kind(thin, target, missing=0.0),
    }[form]()
    run = save(tmp_path, BINARY, data)
    check_all(run, data)


@pytest.mark.parametrize("kind", [xgboost.DMatrix, xgboost.QuantileDMatrix])
@pytest.mark.parametrize("classes", [2, 3])
def test_weights_and_margins_to_begin_with(tmp_path: Path, kind: Any, classes: int) -> None:
    values, random = features(ROWS), np.random.default_rng(2)
    shape = (ROWS,) if classes == 2 else (ROWS, classes)
    data = kind(
        values,
        labels(values, classes),
        weight=random.random(ROWS),
        base_margin=random.normal(size=shape),
    )
    run = save(tmp_path, BINARY if classes == 2 else CLASSES, data)
    check_all(run, data)


def test_data_that_the_model_was_not_trained_on(tmp_path: Path) -> None:
    data, held_out = matrix(ROWS), matrix(70, seed=8)
    rare = xgboost.QuantileDMatrix(features(50, seed=6), max_bin=4)
    given = {"train_data": rare, "validation_data": held_out}
    run = save(tmp_path, BINARY, data, hook_options=given)
    for step, model in enumerate(run.models):
        check_shap(run, model, rare, step)
        check_predictions(run, model, held_out, step)
        np.testing.assert_array_equal(run.value("labels", step), held_out.get_label())
    assert run.value("predictions", 0).shape == (70,)


def saved_margins(run: Run, values: dict[str, Array]) -> list[float]:
    """Go down the saved trees with every row, as a reader would."""
    trees = [run.at(step, "trees/") for step in run.trial.steps()]
    return [_saved_margin(trees, values, row) for row in range(len(values["real"]))]


def _saved_margin(trees: list[dict[str, Array]], values: dict[str, Array], row: int) -> float:
    total = 0.0
    for found in trees:
        places = {identity: place for place, identity in enumerate(found["ID"].tolist())}
        for tree in np.unique(found["Tree"]):
            place = places[f"{tree}-0"]
            while (feature := str(found["Feature"][place])) != "Leaf":
                value, category = float(values[feature][row]), str(found["Category"][place])
                if math.isnan(value):
                    way = "Missing"
                elif category != "nan":
                    way = "Yes" if int(value) in json.loads(category) else "No"
                elif math.isnan(found["Split"][place]):
                    # An indicator: it is there.
                    way = "Yes"
                else:
                    way = "Yes" if value < np.float32(found["Split"][place]) else "No"
                place = places[str(found[way][place])]
            total += float(found["Gain"][place])
    return total


@pytest.mark.parametrize("largest_one_hot", [1, 100], ids=["partitions", "one-hot"])
def test_the_saved_trees_predict_what_the_model_predicts(
    tmp_path: Path, largest_one_hot: int
) -> None:
    values, target = frame()
    data = xgboost.DMatrix(values, target, enable_categorical=True)
    params = {**BINARY, "max_cat_to_onehot": largest_one_hot, "base_score": 0.5, "max_depth": 5}
    run = save(tmp_path, params, data)
    codes = values["colour"].cat.codes.to_numpy()
    columns = {name: values[name].to_numpy(np.float32) for name in ("real", "gaps", "whole")}
    columns["colour"] = np.where(codes < 0, np.nan, codes)
    margins = run.booster.predict(data, output_margin=True)
    np.testing.assert_allclose(saved_margins(run, columns), margins, atol=1e-5)


@pytest.mark.parametrize("method", ["exact", "approx", "hist"])
def test_integers_of_either_sign(tmp_path: Path, method: str) -> None:
    values = np.random.default_rng(4).integers(-12, 12, (ROWS, 3))
    data = xgboost.DMatrix(
        values, values[:, 0] * values[:, 1] + values[:, 2] > 0,
        feature_types=["int", "int", "float"],
    )  # fmt: skip
    run = save(tmp_path, {**BINARY, "tree_method": method, "max_depth": 5}, data)
    check_all(run, data)
    assert (run.value("trees/Split", 0) < 0).any()


def test_indicators_and_integers(tmp_path: Path) -> None:
    # An indicator is there, or it is missing; trees_to_dataframe cannot read a model with one.
    values, random = features(ROWS), np.random.default_rng(4)
    there = np.where(random.random(ROWS) < 0.5, np.nan, 1)
    whole = random.integers(0, 30, ROWS)
    target = (np.nan_to_num(there) + whole / 30 + values[:, 0] > 0.8).astype(int)
    data = xgboost.DMatrix(
        np.column_stack([there, whole, values[:, 0]]), target,
        feature_names=["there", "whole", "real"], feature_types=["i", "int", "float"],
    )  # fmt: skip
    run = save(tmp_path, {**BINARY, "base_score": 0.5}, data)
    assert "there" in np.concatenate([run.value("trees/Feature", step) for step in range(4)])
    columns = {"there": there, "whole": whole.astype(np.float32), "real": values[:, 0]}
    margins = run.booster.predict(data, output_margin=True)
    np.testing.assert_allclose(saved_margins(run, columns), margins, atol=1e-5)


# ---- which rows SHAP values are of


def chosen(rows: int, samples: int) -> Array:
    """Evenly spread from the first to the last."""
    return np.array([place * (rows - 1) // max(samples - 1, 1) for place in range(samples)])


def margin_matrix(kind: Any) -> Any:
    values = features(ROWS)
    return kind(values, labels(values), base_margin=values[:, 2] * 3)


def numbered_categories_matrix(kind: Any) -> Any:
    values, target = frame()
    codes = values["colour"].cat.codes.to_numpy()
    columns = np.column_stack([np.where(codes < 0, np.nan, codes), values["real"]])
    return kind(columns, target, feature_types=["c", "float"], enable_categorical=True)


def gaps_matrix(kind: Any) -> Any:
    values = features(ROWS)
    return kind(with_gaps(values), labels(values))


SAMPLED: list[tuple[str, dict[str, Any], Callable[[Any], Any]]] = [
    ("gaps", BINARY, gaps_matrix),
    ("regression", REGRESSION, regression_matrix),
    ("groups", RANKING, ranking_matrix),
    ("groups with weights", RANKING,
     lambda kind: ranking_matrix(kind, weight=np.linspace(1, 2, 12))),
    ("margins", BINARY, margin_matrix),
    ("categories by number", BINARY, numbered_categories_matrix),
    ("classes", CLASSES, lambda kind: kind(features(ROWS), labels(features(ROWS), 3))),
    ("classes with margins", CLASSES,
     lambda kind: kind(features(ROWS), labels(features(ROWS), 3),
                       base_margin=features(ROWS)[:, :3])),
]  # fmt: skip


@pytest.mark.parametrize("kind", [xgboost.DMatrix, xgboost.QuantileDMatrix])
@pytest.mark.parametrize(
    ("params", "data"), [each[1:] for each in SAMPLED], ids=[each[0] for each in SAMPLED]
)
def test_shap_values_are_of_rows_evenly_spread(
    tmp_path: Path, kind: Any, params: dict[str, Any], data: Callable[[Any], Any]
) -> None:
    made = data(kind)
    given = {"shap_samples": 33}
    run = save(tmp_path, params, made, 3, hook_options=given)
    for step, model in enumerate(run.models):
        check_shap(run, model, made, step, chosen(made.num_row(), 33))
        # Everything else is of all rows.
        check_predictions(run, model, made, step)


def test_rows_with_named_categories(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    values, target = frame()
    given = {"shap_samples": 33}
    sliced = xgboost.DMatrix(values, target, enable_categorical=True)
    run = save(tmp_path / "sliced", BINARY, sliced, 3, hook_options=given)
    for step, model in enumerate(run.models):
        check_shap(run, model, sliced, step, chosen(len(values), 33))
    assert "shap" not in caplog.text
    # The meaning of category codes is not available from a quantile matrix.
    whole = xgboost.QuantileDMatrix(values, target, enable_categorical=True)
    run = save(tmp_path / "whole", BINARY, whole, 3, hook_options=given)
    assert run.trial.tensor_names(regex="shap") == []
    assert caplog.text.count("full_shap cannot be saved") == 1
    check_predictions(run, run.models[2], whole, 2)


def test_matrix_subclass(tmp_path: Path) -> None:
    class Mine(xgboost.DMatrix):
        pass

    data = margin_matrix(Mine)
    run = save(tmp_path, BINARY, data, 3, hook_options={"shap_samples": 33})
    check_shap(run, run.models[2], data, 2, chosen(ROWS, 33))


@pytest.mark.parametrize("kind", [xgboost.DMatrix, xgboost.QuantileDMatrix])
@pytest.mark.parametrize("samples", [1, 2, ROWS - 1, ROWS, ROWS + 1])
def test_shap_samples_at_its_ends(tmp_path: Path, kind: Any, samples: int) -> None:
    data = gaps_matrix(kind)
    run = save(tmp_path, BINARY, data, 2, hook_options={"shap_samples": samples})
    rows = chosen(ROWS, samples) if samples < ROWS else np.arange(ROWS)
    check_shap(run, run.models[1], data, 1, rows)
    assert len(run.value("full_shap", 1)) == min(samples, ROWS)


def test_shap_samples_is_ten_thousand_rows(tmp_path: Path) -> None:
    rows = 10_050
    values = np.random.default_rng(0).normal(size=(rows, 2))
    data = xgboost.DMatrix(values, values[:, 0] > 0)
    hook = smd.Hook(tmp_path, include_collections=["full_shap"], train_data=data, save_config=EVERY)
    booster = train(hook, 1, {**BINARY, "max_depth": 1}, data)
    hook.close()
    found = smd.create_trial(tmp_path).tensor("full_shap").value(0)
    expected = booster.predict(data, pred_contribs=True)[chosen(rows, 10_000)]
    np.testing.assert_array_equal(found, expected)


class Chunks(xgboost.DataIter):
    """Rows that come bit by bit."""

    def __init__(self, cache: str | None = None) -> None:
        self._place = 0
        super().__init__(cache_prefix=cache)

    def next(self, input_data: Any) -> bool:
        if self._place >= ROWS:
            return False
        rows = slice(self._place, self._place + 40)
        values = features(ROWS)
        input_data(data=values[rows], label=labels(values)[rows])
        self._place += 40
        return True

    def reset(self) -> None:
        self._place = 0


@pytest.mark.parametrize("samples", [30, 1000])
def test_data_from_an_iterator(tmp_path: Path, samples: int) -> None:
    data = xgboost.QuantileDMatrix(Chunks())
    run = save(tmp_path, BINARY, data, 3, hook_options={"shap_samples": samples})
    for step, model in enumerate(run.models):
        check_predictions(run, model, data, step)
        check_shap(run, model, data, step, chosen(ROWS, 30) if samples == 30 else None)


@pytest.mark.parametrize("kind", [xgboost.DMatrix, xgboost.ExtMemQuantileDMatrix])
@pytest.mark.parametrize("samples", [30, 1000])
def test_data_that_stays_on_disk(tmp_path: Path, kind: Any, samples: int) -> None:
    data = kind(Chunks(str(tmp_path / "cache")))
    run = save(tmp_path / "run", BINARY, data, 3, hook_options={"shap_samples": samples})
    check_metrics(run)
    for step, model in enumerate(run.models):
        check_importances(run, model, step)
        check_predictions(run, model, data, step)
        check_trees(run, model, step, step)
    # Rows of it cannot be taken out; all of them together can be explained.
    assert run.trial.has_tensor("full_shap") == (samples == 1000)
    if samples == 1000:
        check_shap(run, run.models[2], data, 2)


# ---- hyperparameters


def test_hyperparameters_are_saved_as_they_were_given(tmp_path: Path) -> None:
    params: dict[str, Any] = {
        **{"eta": 0.3, "max_depth": 6, "objective": "binary:logistic", "flag": True},
        **{"monotone": (1, 0, -1), "eval_metric": ["auc", "error@0.7"], "text": "naïve 数"},
        **{"np": np.float32(0.1), "huge": 2**70, "inf": math.inf, "negative": -3},
    }
    hook = smd.Hook(
        tmp_path, include_collections=["hyperparameters"], hyperparameters=params, save_config=EVERY
    )
    train(hook, 2)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor_names(collection="hyperparameters") == sorted(
        f"hyperparameters/{name}" for name in params
    )
    for step in range(2):
        found = {
            name: trial.tensor(f"hyperparameters/{name}").value(step).tolist() for name in params
        }
        assert found == {
            **{"eta": [0.3], "max_depth": [6], "objective": ["binary:logistic"], "flag": [True]},
            **{"monotone": [1, 0, -1], "eval_metric": ["auc", "error@0.7"], "text": ["naïve 数"]},
            **{"np": [float(np.float32(0.1))], "huge": [str(2**70)], "inf": [math.inf]},
            **{"negative": [-3]},
        }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "None"),
        ({"a": [1, None]}, {"a": [1, None]}),
        ([[0, 1], [2]], [[0, 1], [2]]),
        ([[0, 1], [2, 3]], [[0, 1], [2, 3]]),
        ([], []),
        (b"bytes", "b'bytes'"),
        (1j, "1j"),
    ],
    ids=str,
)
def test_other_hyperparameters_are_saved_as_text(tmp_path: Path, value: Any, expected: Any) -> None:
    hook = smd.Hook(
        tmp_path, include_collections=["hyperparameters"], hyperparameters={"odd": value},
        save_config=EVERY,
    )  # fmt: skip
    train(hook, 1)
    hook.close()
    (found,) = smd.create_trial(tmp_path).tensor("hyperparameters/odd").value(0).tolist()
    assert (found if isinstance(expected, str) else json.loads(found)) == expected


# ---- what it costs


# The queries of a model, and their purposes.
ASKED = {
    "predict": "predictions",
    "get_score": "scores",
    **dict.fromkeys(("__getitem__", "get_dump", "save_raw", "trees_to_dataframe"), "trees"),
}


class Calls(TrainingCallback):
    """Counts the queries of a model, and passes them on; comes before the hook."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._calls: list[tuple[str, int]] = []
        self._round = -1
        for method, what in ASKED.items():
            self._count(monkeypatch, method, what)

    def _count(self, monkeypatch: pytest.MonkeyPatch, method: str, what: str) -> None:
        own = getattr(xgboost.Booster, method)

        def counted(booster: Any, *args: Any, **options: Any) -> Any:
            asked = "shap" if options.get("pred_contribs") else what
            self._calls.append((asked, self._round))
            return own(booster, *args, **options)

        monkeypatch.setattr(xgboost.Booster, method, counted)

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._round = epoch
        return False

    def of(self, what: str) -> list[int]:
        """The rounds after which the model was queried, once for every query."""
        return [number for each, number in self._calls if each == what]

    @property
    def kinds(self) -> set[str]:
        return {what for what, _ in self._calls}


def test_model_is_queried_at_saving_rounds_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, calls = matrix(ROWS), Calls(monkeypatch)
    hook = smd.Hook(
        tmp_path, save_all=True, train_data=data, validation_data=data,
        save_config=smd.SaveConfig(save_interval=4), hyperparameters=BINARY,
    )  # fmt: skip
    train(hook, 10, data=data, callbacks=[calls])
    hook.close()
    # Once for the mean and for the rows: it takes long.
    assert calls.of("shap") == [0, 4, 8]
    assert calls.of("predictions") == [0, 4, 8]
    assert calls.of("scores") == [0] * 5 + [4] * 5 + [8] * 5
    assert set(calls.of("trees")) == {0, 4, 8}
    assert smd.create_trial(tmp_path).tensor("full_shap").steps() == [0, 4, 8]


def test_model_is_not_queried_for_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, calls = matrix(ROWS), Calls(monkeypatch)
    hook = smd.Hook(tmp_path, train_data=data, validation_data=data, save_config=EVERY)
    train(hook, 5, data=data, callbacks=[calls])
    hook.close()
    assert calls.kinds == set()
    assert smd.create_trial(tmp_path).tensor("train-logloss").steps() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("collection", "asked"),
    [
        ("predictions", "predictions"),
        ("labels", None),
        ("hyperparameters", None),
        ("average_shap", "shap"),
        ("full_shap", "shap"),
        ("feature_importance", "scores"),
        ("trees", "trees"),
    ],
)
def test_model_is_queried_for_included_collections_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collection: str, asked: str | None
) -> None:
    data, calls = matrix(ROWS), Calls(monkeypatch)
    hook = smd.Hook(
        tmp_path, train_data=data, validation_data=data, hyperparameters=BINARY,
        include_collections=[collection], save_config=EVERY,
    )  # fmt: skip
    hook.get_collection(collection).save_config = smd.SaveConfig(save_steps=[1, 3], end_step=0)
    train(hook, 5, data=data, callbacks=[calls])
    hook.close()
    assert calls.kinds == ({asked} if asked else set())
    if asked is not None:
        assert set(calls.of(asked)) == {1, 3}
    trial = smd.create_trial(tmp_path)
    names = trial.tensor_names(collection=collection)
    assert names
    assert trial.tensor(names[0]).steps() == [1, 3]
    assert trial.tensor("train-logloss").steps() == [0, 1, 2, 3, 4]


def test_one_kind_of_importance_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, calls = matrix(ROWS), Calls(monkeypatch)
    hook = smd.Hook(tmp_path, include_regex="^feature_importance/gain/", save_config=EVERY)
    booster = train(hook, 3, data=data, callbacks=[calls])
    hook.close()
    assert calls.of("scores") == [0, 1, 2]
    trial = smd.create_trial(tmp_path)
    expected = importances(booster, "gain")
    names = trial.tensor_names(regex="^feature_importance/", step=2)
    assert names == sorted(f"feature_importance/gain/{each}" for each in expected)


def test_column_of_full_shap_can_be_saved_alone(tmp_path: Path) -> None:
    data = matrix(ROWS)
    hook = smd.Hook(tmp_path, include_regex=["^full_shap/f1$"], train_data=data, save_config=EVERY)
    booster = train(hook, 3, data=data)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor_names(regex="shap") == ["full_shap/f1"]
    expected = booster.predict(data, pred_contribs=True)
    np.testing.assert_array_equal(trial.tensor("full_shap/f1").value(2), expected[:, 1])
    assert expected.shape == (ROWS, FEATURES + 1)


def test_every_tenth_round_is_saved_by_default(tmp_path: Path) -> None:
    data = matrix(ROWS)
    hook = smd.Hook(tmp_path, include_collections=["predictions"], validation_data=data)
    booster = train(hook, 25, data=data)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.steps() == [0, 10, 20]
    for step in trial.steps():
        expected = booster.predict(data, iteration_range=(0, step + 1))
        np.testing.assert_array_equal(trial.tensor("predictions").value(step), expected)


def test_predictions_are_of_their_round_and_do_not_change_afterwards(tmp_path: Path) -> None:
    # The writer comes later: what it writes must not be memory that the next round fills.
    data = matrix(ROWS)
    hook = smd.Hook(
        tmp_path, save_all=True, save_config=EVERY, validation_data=data, train_data=data,
        flush_seconds=60,
    )  # fmt: skip
    booster = train(hook, 40, data=data)
    hook.close()
    trial = smd.create_trial(tmp_path)
    for step in range(40):
        cut = booster[: step + 1]
        np.testing.assert_array_equal(trial.tensor("predictions").value(step), cut.predict(data))
        np.testing.assert_array_equal(
            trial.tensor("full_shap").value(step), cut.predict(data, pred_contribs=True)
        )
