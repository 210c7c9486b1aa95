"""Training goes the same way with a hook as without, to the last bit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xgboost
from tests.xgboost.data import BINARY, features, labels
from xgboost.callback import EarlyStopping, LearningRateScheduler, TrainingCallback

import smdebug.xgboost as smd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from smdebug.reductions import Array

EVERY = smd.SaveConfig(save_interval=1)
ROWS = 300
CLASSES = {**BINARY, "objective": "multi:softprob", "num_class": 3}
RANDOM = {"subsample": 0.6, "colsample_bytree": 0.7, "colsample_bylevel": 0.8, "seed": 7}


def saver(out_dir: Path, data: Any, **options: Any) -> smd.Hook:
    """A hook that computes everything at every round."""
    given = {"train_data": data, "validation_data": data, "shap_samples": 50, **options}
    return smd.Hook(
        out_dir, save_all=True, save_config=EVERY, hyperparameters={"a": 1}, on_error="raise",
        **given,
    )  # fmt: skip


def values(seed: int = 0) -> Array:
    return features(ROWS, seed)


def make(kind: Any = xgboost.DMatrix, classes: int = 2, seed: int = 0, **options: Any) -> Any:
    found = values(seed)
    return kind(found, labels(found, classes), **options)


class Outcome:
    """All results of training: the model to the last bit, and the metrics."""

    def __init__(self, booster: Any, result: Any) -> None:
        self.raw = bytes(booster.save_raw("ubj"))
        self.config = json.loads(booster.save_config())
        self.attributes = booster.attributes()
        self.result = json.loads(json.dumps(result))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def train(
    params: dict[str, Any],
    data: Any,
    callbacks: list[Any],
    rounds: int = 12,
    evals: list[Any] | None = None,
    **options: Any,
) -> Outcome:
    result: dict[str, Any] = {}
    booster = xgboost.train(
        params, data, rounds, evals=[(data, "train")] if evals is None else evals,
        evals_result=result, callbacks=callbacks, verbose_eval=False, **options,
    )  # fmt: skip
    return Outcome(booster, result)


TRAININGS: list[tuple[str, dict[str, Any], Callable[[], Any]]] = [
    ("trees", BINARY, make),
    ("random rows and columns", {**BINARY, **RANDOM}, make),
    ("few rows", {**BINARY, **RANDOM, "subsample": 0.2}, make),
    ("exact", {**BINARY, **RANDOM, "tree_method": "exact"}, make),
    ("approx", {**BINARY, **RANDOM, "tree_method": "approx"}, make),
    ("random columns at nodes", {**BINARY, "colsample_bynode": 0.4, "seed": 3}, make),
    ("forests", {**BINARY, **RANDOM, "num_parallel_tree": 3}, make),
    ("dart", {**BINARY, "booster": "dart", "rate_drop": 0.4, "skip_drop": 0.2, "seed": 5}, make),
    ("dart, one at least",
     {**BINARY, **RANDOM, "booster": "dart", "rate_drop": 0.1, "one_drop": 1,
      "normalize_type": "forest"}, make),
    ("linear",
     {"booster": "gblinear", "updater": "coord_descent", "objective": "binary:logistic",
      "nthread": 1, "seed": 0}, make),
    ("linear, in random order",
     {"booster": "gblinear", "updater": "coord_descent", "feature_selector": "random",
      "objective": "binary:logistic", "nthread": 1, "seed": 4}, make),
    ("classes", {**CLASSES, **RANDOM}, lambda: make(classes=3)),
    ("classes with dart", {**CLASSES, "booster": "dart", "rate_drop": 0.5},
     lambda: make(classes=3)),
    ("quantiles of data", {**BINARY, **RANDOM}, lambda: make(xgboost.QuantileDMatrix)),
    ("few quantiles of data", {**BINARY, "max_bin": 8},
     lambda: make(xgboost.QuantileDMatrix, max_bin=8)),
    ("margins and weights", {**BINARY, **RANDOM},
     lambda: make(base_margin=values()[:, 3], weight=np.linspace(0.1, 2, ROWS))),
    ("ranking", {**BINARY, "objective": "rank:ndcg", "lambdarank_pair_method": "topk"},
     lambda: make(classes=4, qid=np.repeat(np.arange(30), 10))),
    ("ranking by chance",
     {**BINARY, "objective": "rank:pairwise", "lambdarank_pair_method": "mean", "seed": 9},
     lambda: make(classes=4, qid=np.repeat(np.arange(30), 10))),
    ("absolute error", {**BINARY, "objective": "reg:absoluteerror"}, make),
    ("best leaf first", {**BINARY, "grow_policy": "lossguide", "max_leaves": 9}, make),
    ("targets", {**BINARY, **RANDOM, "objective": "reg:squarederror"},
     lambda: xgboost.DMatrix(values(), values()[:, :2] ** 2)),
    ("one tree for targets",
     {**BINARY, "objective": "reg:squarederror", "multi_strategy": "multi_output_tree"},
     lambda: xgboost.DMatrix(values(), values()[:, :2] ** 2)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("params", "data"), [each[1:] for each in TRAININGS], ids=[each[0] for each in TRAININGS]
)
@pytest.mark.parametrize("same", [True, False], ids=["of its own matrix", "of another matrix"])
def test_a_model_is_the_same_with_a_hook(
    tmp_path: Path, params: dict[str, Any], data: Callable[[], Any], same: bool
) -> None:
    expected = train(params, data(), [])
    assert train(params, data(), []) == expected, "XGBoost itself trains differently every time"
    own = data()
    hook = saver(tmp_path, own if same else data())
    found = train(params, own, [hook])
    hook.close()
    assert found == expected
    trial = smd.create_trial(tmp_path)
    assert trial.steps() == list(range(12))
    assert trial.tensor("predictions").steps() == list(range(12))


def test_model_is_the_same_when_the_hook_uses_the_evaluation_data(tmp_path: Path) -> None:
    params = {**BINARY, **RANDOM, "eval_metric": ["logloss", "auc", "error@0.4"]}

    def outcome(hook_options: dict[str, str] | None = None) -> Outcome:
        sets = {"train": make(), "other": make(seed=5)}
        evals = [(sets["train"], "train"), (sets["other"], "other")]
        if hook_options is None:
            return train(params, sets["train"], [], evals=evals)
        given = {key: sets[name] for key, name in hook_options.items()}
        with smd.Hook(
            tmp_path / "-".join(hook_options.values()), save_all=True, save_config=EVERY, **given
        ) as hook:
            return train(params, sets["train"], [hook], evals=evals)

    expected = outcome()
    assert outcome({"train_data": "train", "validation_data": "other"}) == expected
    assert outcome({"train_data": "other", "validation_data": "train"}) == expected


@pytest.mark.parametrize("first", [True, False], ids=["hook first", "hook last"])
@pytest.mark.parametrize("save_best", [True, False])
def test_early_stopping_stops_at_the_same_round(
    tmp_path: Path, first: bool, save_best: bool
) -> None:
    params = {**BINARY, **RANDOM, "learning_rate": 0.9}

    def outcome(hook: smd.Hook | None) -> Outcome:
        stop = EarlyStopping(rounds=3, data_name="other", save_best=save_best)
        hooks = [] if hook is None else [hook]
        callbacks = [*hooks, stop] if first else [stop, *hooks]
        data, other = make(), make(seed=5)
        return train(params, data, callbacks, 80, [(data, "train"), (other, "other")])

    expected = outcome(None)
    with saver(tmp_path, make()) as hook:
        assert outcome(hook) == expected
    rounds = len(expected.result["other"]["logloss"])
    assert 3 < rounds < 80
    assert smd.create_trial(tmp_path).steps() == list(range(rounds))
    assert expected.attributes["best_iteration"]


def test_the_argument_for_early_stopping_does_the_same(tmp_path: Path) -> None:
    def outcome(hooks: list[Any]) -> Outcome:
        data, other = make(), make(seed=5)
        return train(
            {**BINARY, "learning_rate": 0.9}, data, hooks, 80, [(other, "other")],
            early_stopping_rounds=2,
        )  # fmt: skip

    expected = outcome([])
    with saver(tmp_path, make()) as hook:
        assert outcome([hook]) == expected


@pytest.mark.parametrize("first", [True, False], ids=["hook first", "hook last"])
def test_a_schedule_of_learning_rates_goes_the_same_way(tmp_path: Path, first: bool) -> None:
    def outcome(hooks: list[Any]) -> Outcome:
        schedule = LearningRateScheduler(lambda epoch: 0.5 / (epoch + 1))
        return train(BINARY, make(), [*hooks, schedule] if first else [schedule, *hooks])

    expected = outcome([])
    with saver(tmp_path, make()) as hook:
        assert outcome([hook]) == expected
    assert expected != train(BINARY, make(), [])


class Changes(TrainingCallback):
    """Changes parameters while training runs."""

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        model.set_param({"max_depth": 1 + epoch % 4, "subsample": 1 - epoch / 20})
        return False


def test_parameters_that_change_on_the_way_take_effect_at_the_same_round(tmp_path: Path) -> None:
    expected = train(BINARY, make(), [Changes()])
    for place, order in enumerate([slice(None), slice(None, None, -1)]):
        with saver(tmp_path / str(place), make()) as hook:
            assert train(BINARY, make(), [hook, Changes()][order]) == expected


def test_continued_training_is_the_same(tmp_path: Path) -> None:
    params = {**BINARY, **RANDOM}

    def outcome(hooks: list[Any]) -> Outcome:
        before = xgboost.train(params, make(), 4)
        return train(params, make(), hooks, 5, xgb_model=before)

    expected = outcome([])
    with saver(tmp_path, make()) as hook:
        assert outcome([hook]) == expected
    assert smd.create_trial(tmp_path).steps() == [4, 5, 6, 7, 8]


@pytest.mark.filterwarnings("ignore:.*manually specified the `updater`")
@pytest.mark.parametrize("updater", ["refresh", "prune"])
def test_a_model_is_updated_the_same_way(tmp_path: Path, updater: str) -> None:
    params = {**BINARY, "process_type": "update", "updater": updater, "gamma": 2.0}

    def outcome(hooks: list[Any]) -> Outcome:
        before = xgboost.train(BINARY, make(), 6)
        return train(params, make(seed=4), hooks, 6, xgb_model=before)

    expected = outcome([])
    with saver(tmp_path, make()) as hook:
        assert outcome([hook]) == expected


def test_custom_objectives_and_metrics_are_called_the_same_way(tmp_path: Path) -> None:
    def outcome(hooks: list[Any]) -> tuple[Outcome, list[Array]]:
        seen: list[Array] = []

        def objective(margins: Array, data: Any) -> tuple[Array, Array]:
            seen.append(margins.copy())
            chances = 1 / (1 + np.exp(-margins))
            return chances - data.get_label(), chances * (1 - chances)

        def metric(margins: Array, data: Any) -> tuple[str, float]:
            seen.append(margins.copy())
            return "mean", float(margins.mean())

        params = {"max_depth": 3, "nthread": 1, "base_score": 0.0, **RANDOM}
        return train(params, make(), hooks, obj=objective, custom_metric=metric), seen

    expected, seen = outcome([])
    with saver(tmp_path, make()) as hook:
        found, seen_with = outcome([hook])
    assert found == expected
    assert len(seen_with) == len(seen) == 24
    for one, other in zip(seen, seen_with, strict=True):
        np.testing.assert_array_equal(one, other)


def test_one_matrix_for_several_training_runs(tmp_path: Path) -> None:
    # What the hook made XGBoost remember of a matrix must not reach the next training.
    data = make()
    expected = [train({**BINARY, "seed": seed, "subsample": 0.5}, data, []) for seed in range(3)]
    with saver(tmp_path, data) as hook:
        found = [
            train({**BINARY, "seed": seed, "subsample": 0.5}, data, [hook]) for seed in range(3)
        ]
    assert found == expected
    assert smd.create_trial(tmp_path).steps() == list(range(36))


@pytest.mark.parametrize("interval", [1, 3])
def test_a_model_is_the_same_at_any_interval(tmp_path: Path, interval: int) -> None:
    # Between saving rounds the model is not queried: earlier queries must not have an effect.
    params = {**BINARY, "booster": "dart", "rate_drop": 0.5, "one_drop": 1}
    data = make()
    expected = train(params, make(), [], 20)
    with smd.Hook(
        tmp_path, save_all=True, save_config=smd.SaveConfig(save_interval=interval),
        train_data=data, validation_data=data,
    ) as hook:  # fmt: skip
        assert train(params, data, [hook], 20) == expected


def test_two_hooks_do_not_disturb_each_other(tmp_path: Path) -> None:
    data = make()
    expected = train({**BINARY, **RANDOM}, make(), [])
    hooks = [saver(tmp_path / name, data) for name in ("one", "two")]
    assert train({**BINARY, **RANDOM}, data, hooks) == expected
    for hook in hooks:
        hook.close()
    one, two = (smd.create_trial(tmp_path / name) for name in ("one", "two"))
    assert one.tensor_names() == two.tensor_names()
    for step in range(12):
        np.testing.assert_array_equal(
            one.tensor("predictions").value(step), two.tensor("predictions").value(step)
        )


# ---- estimators and cross-validation


@pytest.mark.parametrize("early", [None, 3])
@pytest.mark.parametrize("kind", ["classifier", "classes", "regressor", "ranker"])
def test_an_estimator_is_fitted_the_same_way(tmp_path: Path, kind: str, early: int | None) -> None:
    found = values()
    target = {
        "classifier": labels(found),
        "classes": labels(found, 3),
        "regressor": found[:, 0] * found[:, 1],
        "ranker": labels(found, 4),
    }[kind]
    estimator = {
        "classifier": xgboost.XGBClassifier,
        "classes": xgboost.XGBClassifier,
        "regressor": xgboost.XGBRegressor,
        "ranker": xgboost.XGBRanker,
    }[kind]

    def fitted(hooks: list[Any]) -> Any:
        model = estimator(
            n_estimators=30, max_depth=3, n_jobs=1, subsample=0.7, random_state=1,
            learning_rate=0.8, early_stopping_rounds=early, callbacks=hooks or None,
        )  # fmt: skip
        extra: dict[str, Any] = {}
        if kind == "ranker":
            queries = np.repeat(np.arange(30), 10)
            extra = {"qid": queries[:200], "eval_qid": [queries[200:]]}
        return model.fit(
            found[:200], target[:200], eval_set=[(found[200:], target[200:])], verbose=False,
            **extra,
        )  # fmt: skip

    expected = fitted([])
    data = xgboost.DMatrix(found, target)
    with saver(tmp_path, data) as hook:
        model = fitted([hook])
    assert Outcome(model.get_booster(), model.evals_result()) == Outcome(
        expected.get_booster(), expected.evals_result()
    )
    np.testing.assert_array_equal(model.predict(found), expected.predict(found))
    np.testing.assert_array_equal(model.feature_importances_, expected.feature_importances_)
    if early is not None:
        assert model.best_iteration == expected.best_iteration
    (history,) = next(iter(model.evals_result().values())).values()
    assert smd.create_trial(tmp_path).steps() == list(range(len(history)))


@pytest.mark.parametrize("booster", ["gbtree", "dart", "gblinear"])
@pytest.mark.parametrize("early", [None, 3])
def test_cross_validation_has_the_same_result(
    tmp_path: Path, booster: str, early: int | None
) -> None:
    params: dict[str, Any] = {
        "objective": "binary:logistic", "nthread": 1, "booster": booster, "learning_rate": 0.8,
        "eval_metric": ["auc", "logloss"],
    }  # fmt: skip
    if booster == "gblinear":
        params |= {"updater": "coord_descent"}
    else:
        params |= {"subsample": 0.6, "max_depth": 3}
    if booster == "dart":
        params |= {"rate_drop": 0.5}

    def result(hooks: list[Any]) -> dict[str, list[float]]:
        found: dict[str, list[float]] = xgboost.cv(
            params, make(), 25, nfold=3, seed=2, as_pandas=False, callbacks=hooks,
            early_stopping_rounds=early,
        )  # fmt: skip
        return found

    expected = result([])
    with saver(tmp_path, make()) as hook:
        assert result([hook]) == expected
    trial = smd.create_trial(tmp_path)
    # Cross-validation forgets the rounds after the best one; they did take place.
    rounds = len(expected["test-logloss-mean"])
    assert trial.steps() == list(range(len(trial.steps())))
    assert len(trial.steps()) - rounds == (0 if early is None or rounds == 25 else early)
    for step in range(rounds):
        for data in ("train", "test"):
            for metric in ("auc", "logloss"):
                mean = trial.tensor(f"{data}-{metric}").value(step).tolist()
                assert mean == [expected[f"{data}-{metric}-mean"][step]]
