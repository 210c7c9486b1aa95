"""What tensors are called, and which collections find them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
import xgboost
from tests.xgboost.data import BINARY, FEATURES, features, labels, matrix, train
from xgboost.callback import TrainingCallback

import smdebug.xgboost as smd
from smdebug import ReductionConfig
from smdebug.exceptions import InvalidCollectionConfiguration

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from smdebug.reductions import Array
    from smdebug.trials import Trial

EVERY = smd.SaveConfig(save_interval=1)
OFF = smd.SaveConfig(end_step=0)
ROWS = 120
KINDS = ["weight", "gain", "cover", "total_gain", "total_cover"]
COLUMNS = [
    *("Tree", "Node", "ID", "Feature", "Split", "Yes", "No", "Missing", "Gain", "Cover"),
    "Category",
]
PLAIN = [f"f{number}" for number in range(FEATURES)]

METRICS = ["train-logloss"]
HYPERPARAMETERS = [f"hyperparameters/{name}" for name in BINARY]
DATA = ["labels", "predictions"]
AVERAGES = [f"average_shap/{name}" for name in PLAIN]
ROWS_OF_SHAP = ["full_shap", *[f"full_shap/{name}" for name in PLAIN]]
IMPORTANCES = [f"feature_importance/{kind}/{name}" for kind in KINDS for name in PLAIN]
TREES = [f"trees/{column}" for column in COLUMNS]


def run(
    out_dir: Path, rounds: int = 3, change: Callable[[smd.Hook], None] | None = None, **options: Any
) -> Trial:
    """Trains with data and parameters for everything; `change` is called before."""
    data = busy_matrix(PLAIN)
    given: dict[str, Any] = {"save_config": EVERY, "hyperparameters": BINARY, **options}
    hook = smd.Hook(out_dir, train_data=data, validation_data=data, **given)
    if change is not None:
        change(hook)
    train(hook, rounds, data=data)
    hook.close()
    return smd.create_trial(out_dir)


def busy_matrix(names: list[str]) -> Any:
    """Data of which a tree uses every feature."""
    values = np.random.default_rng(0).normal(size=(ROWS, len(names))).astype(np.float32)
    return xgboost.DMatrix(values, (values.sum(axis=1) > 0), feature_names=names)


def collections_file(out_dir: Path) -> dict[str, Any]:
    path = out_dir / "collections" / "000000000" / "worker_0_collections.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


# ---- features

NAMES = {
    "spaces": ["with space", " leading", "trailing ", "two  of them", "non\u00a0breaking"],
    "slashes": ["a/b", "/root", "end/", "a//b", "../up"],
    "quotes": ['say "x"', "it's", "`tick`", "back\\slash", '"'],
    "unicode": ["naïve", "数据", "смысл", "🌲", "e\u0301"],
    "last letters": ["club", "taxi", "area", "sales", "bias_"],
    "last letters of the bias": ["b", "i", "a", "s", "basis"],
    "words of ours": ["Leaf", "nan", "None", "full_shap", "trees/Gain"],
    "a feature called bias": ["bias", "bias2", "a/bias", "Bias", "f3"],
    "metrics": ["train-auc", "x-std", "a-", "-", "validation_0-logloss"],
    "regexes": ["a.b", "(x", "^c$", "d*", "e|f"],
    "colons": ["a:0", "b:12", "c:", ":d", "gradient/e:0"],
    "control characters": ["tab\tin", "new\nline", "cr\rin", "bell\x07", "del\x7f"],
    "numbers": ["0", "1.5", "-3", "1e9", "0x10"],
    "percent": ["%s", "%", "{x}", "%2F", "{}"],
    "long": ["x" * 300, "y" * 300, "x" * 301, "é" * 200, "z"],
}


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("names", NAMES.values(), ids=list(NAMES))
def test_features_may_be_called_anything(tmp_path: Path, names: list[str], format: str) -> None:
    data = busy_matrix(names)
    hook = smd.Hook(
        tmp_path, save_all=True, save_config=EVERY, train_data=data, validation_data=data,
        hyperparameters=BINARY, format=format,
    )  # fmt: skip
    booster = train(hook, 3, data=data)
    hook.close()
    trial = smd.create_trial(tmp_path)
    contributions = booster.predict(data, pred_contribs=True)
    columns = names if "bias" in names else [*names, "bias"]
    assert trial.tensor_names(regex="^full_shap/") == sorted(f"full_shap/{n}" for n in columns)
    assert trial.tensor_names(regex="^average_shap/") == sorted(
        f"average_shap/{name}" for name in columns
    )
    for place, name in enumerate(columns):
        own = contributions[:, place]
        np.testing.assert_array_equal(trial.tensor(f"full_shap/{name}").value(2), own)
        np.testing.assert_allclose(
            trial.tensor(f"average_shap/{name}").value(2), [own.mean(dtype=np.float64)], atol=1e-7
        )
    np.testing.assert_array_equal(trial.tensor("full_shap").value(2), contributions)
    for kind in KINDS:
        scores = booster.get_score(importance_type=kind)
        assert trial.tensor_names(regex=f"^feature_importance/{kind}/") == sorted(
            f"feature_importance/{kind}/{name}" for name in scores
        )
        for name, score in scores.items():
            found = trial.tensor(f"feature_importance/{kind}/{name}").value(2)
            np.testing.assert_allclose(found, [score / sum(scores.values())])
    used = set(booster.get_score())
    assert used == set(names)
    in_trees = {
        str(each) for step in range(3) for each in trial.tensor("trees/Feature").value(step)
    }
    assert in_trees == used | {"Leaf"}


@pytest.mark.parametrize("names", NAMES.values(), ids=list(NAMES))
def test_collections_have_every_feature_and_not_the_bias(tmp_path: Path, names: list[str]) -> None:
    data = busy_matrix(names)
    hook = smd.Hook(
        tmp_path, save_config=EVERY, train_data=data,
        include_collections=["average_shap", "full_shap", "feature_importance", "trees"],
    )  # fmt: skip
    booster = train(hook, 3, data=data)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert set(booster.get_score()) == set(names)
    averages = sorted(f"average_shap/{name}" for name in names)
    columns = sorted(["full_shap", *[f"full_shap/{name}" for name in names]])
    scores = sorted(f"feature_importance/{kind}/{name}" for kind in KINDS for name in names)
    assert trial.tensor_names(collection="average_shap") == averages
    assert trial.tensor_names(collection="full_shap") == columns
    assert trial.tensor_names(collection="feature_importance") == scores
    assert trial.tensor_names(collection="metrics") == METRICS
    assert trial.tensor_names(collection="trees") == sorted(TREES)
    # Nothing else: no bias of the model, which is part of full_shap.
    assert trial.tensor_names() == sorted([*METRICS, *averages, *columns, *scores, *TREES])
    np.testing.assert_array_equal(
        trial.tensor("full_shap").value(2), booster.predict(data, pred_contribs=True)
    )


def test_a_feature_called_bias_keeps_its_name_and_a_warning_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = busy_matrix(["bias", "b"])
    hook = smd.Hook(
        tmp_path, save_config=EVERY, train_data=data, include_collections=["average_shap"]
    )
    booster = train(hook, 3, data=data)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor_names(collection="average_shap") == ["average_shap/b", "average_shap/bias"]
    expected = booster.predict(data, pred_contribs=True)[:, 0].mean(dtype=np.float64)
    np.testing.assert_allclose(trial.tensor("average_shap/bias").value(2), [expected], rtol=1e-6)
    assert caplog.text.count("a feature is called bias") == 1


def test_bias_is_saved_when_included(tmp_path: Path) -> None:
    trial = run(tmp_path, include_regex="_shap/bias$")
    assert trial.tensor_names() == ["average_shap/bias", "full_shap/bias", *METRICS]


def test_features_are_called_as_the_columns_of_a_frame(tmp_path: Path) -> None:
    names = ["annual sales", "n/a", "bias", "größe", "7"]
    frame = pd.DataFrame(features(ROWS), columns=names)
    data = xgboost.DMatrix(frame, labels(features(ROWS)))
    hook = smd.Hook(
        tmp_path, save_config=EVERY, train_data=data,
        include_collections=["average_shap", "feature_importance"],
    )  # fmt: skip
    model = xgboost.XGBClassifier(n_estimators=3, max_depth=3, n_jobs=1, callbacks=[hook])
    model.fit(frame, labels(features(ROWS)))
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor_names(collection="average_shap") == sorted(
        f"average_shap/{name}" for name in names
    )
    scores = model.get_booster().get_score(importance_type="weight")
    for name, score in scores.items():
        found = trial.tensor(f"feature_importance/weight/{name}").value(2)
        np.testing.assert_allclose(found, [score / sum(scores.values())])


def test_features_without_names_are_numbered(tmp_path: Path) -> None:
    data = matrix(ROWS)
    hook = smd.Hook(
        tmp_path, save_config=EVERY, train_data=data, include_collections=["average_shap"]
    )
    train(hook, 2, data=data)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor_names(collection="average_shap") == sorted(AVERAGES)


# ---- metrics and losses


def times() -> Any:
    values = features(ROWS)
    lower = np.exp(values[:, 0])
    return xgboost.DMatrix(values, label_lower_bound=lower, label_upper_bound=lower)


# Where training goes up when it goes well, and where it goes down: XGBoost's own.
BETTER_UP = [
    *("auc", "aucpr", "map", "map@3", "map-", "map@3-", "ndcg", "ndcg@3", "ndcg-", "ndcg@3-"),
    *("pre", "pre@3", "ams@0.15"),
]
BETTER_DOWN = [
    *("rmse", "rmsle", "mae", "mape", "mphe", "logloss", "error", "error@0.3"),
    *("poisson-nloglik", "gamma-nloglik", "gamma-deviance", "cox-nloglik", "tweedie-nloglik@1.3"),
]


def evaluated(out_dir: Path, params: dict[str, Any], data: Any, **options: Any) -> Trial:
    hook = smd.Hook(out_dir, save_config=EVERY, include_collections=["losses"])
    train(hook, 1, params, data, evals=[(data, "train"), (data, "validation_0")], **options)
    hook.close()
    return smd.create_trial(out_dir)


def of_both(metrics: list[str]) -> list[str]:
    return sorted(f"{data}-{metric}" for data in ("train", "validation_0") for metric in metrics)


def test_losses_are_the_metrics_where_lower_is_better(tmp_path: Path) -> None:
    params = {**BINARY, "eval_metric": [*BETTER_UP, *BETTER_DOWN]}
    trial = evaluated(tmp_path, params, matrix(ROWS))
    assert trial.tensor_names(collection="metrics") == of_both([*BETTER_UP, *BETTER_DOWN])
    assert trial.tensor_names(collection="losses") == of_both(BETTER_DOWN)


@pytest.mark.parametrize(
    ("params", "data", "losses", "others"),
    [
        ({"objective": "multi:softprob", "num_class": 3, "eval_metric": ["merror", "mlogloss"]},
         lambda: matrix(ROWS, classes=3), ["merror", "mlogloss"], []),
        ({"objective": "survival:aft",
          "eval_metric": ["aft-nloglik", "interval-regression-accuracy"]},
         times, ["aft-nloglik"], ["interval-regression-accuracy"]),
        ({"objective": "reg:quantileerror", "quantile_alpha": 0.5},
         lambda: matrix(ROWS), ["quantile"], []),
    ],
    ids=["classes", "survival", "quantiles"],
)  # fmt: skip
def test_metrics_of_other_objectives(
    tmp_path: Path,
    params: dict[str, Any],
    data: Callable[[], Any],
    losses: list[str],
    others: list[str],
) -> None:
    trial = evaluated(tmp_path, {**params, "nthread": 1}, data())
    assert trial.tensor_names(collection="metrics") == of_both([*losses, *others])
    assert trial.tensor_names(collection="losses") == of_both(losses)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("my_loss", True),
        ("cost-per-click", True),
        ("auc_distance", True),
        ("mapping_error", True),
        ("premium", True),
        ("1-auc", True),
        ("accuracy", False),
        ("accuracy@5", False),
        ("balanced_accuracy", False),
        ("f1", False),
        ("r2", False),
        ("recall", False),
        ("precision@0.5", False),
        ("roc_auc", False),
        # scikit-learn's functions: what ends in _score is better when it is more.
        ("accuracy_score", False),
        ("roc_auc_score", False),
        ("average_precision_score", False),
        ("mean_squared_error", True),
        ("log_loss", True),
    ],
)
def test_custom_metrics_are_losses_unless_their_name_says_otherwise(
    tmp_path: Path, name: str, loss: bool
) -> None:
    def metric(predictions: Array, data: Any) -> tuple[str, float]:
        return name, 0.5

    trial = evaluated(tmp_path, BINARY, matrix(ROWS), custom_metric=metric)
    assert trial.tensor_names(collection="metrics") == of_both(["logloss", name])
    assert trial.tensor_names(collection="losses") == of_both(["logloss", *[name] * loss])


def test_metrics_of_estimators_are_called_as_estimators_call_them(tmp_path: Path) -> None:
    values = features(ROWS)
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["losses"])
    model = xgboost.XGBClassifier(
        n_estimators=2, max_depth=2, n_jobs=1, callbacks=[hook], eval_metric=["auc", "error@0.7"]
    )
    sets = [(values, labels(values)), (values[:50], labels(values)[:50])]
    model.fit(values, labels(values), eval_set=sets, verbose=False)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor_names(collection="metrics") == [
        *("validation_0-auc", "validation_0-error@0.7"),
        *("validation_1-auc", "validation_1-error@0.7"),
    ]
    assert trial.tensor_names(collection="losses") == [
        *("validation_0-error@0.7", "validation_1-error@0.7"),
    ]
    for data, metrics in model.evals_result().items():
        for metric, history in metrics.items():
            found = [trial.tensor(f"{data}-{metric}").value(step)[0] for step in range(2)]
            assert found == history


def test_metrics_that_are_functions_of_scikit_learn(tmp_path: Path) -> None:
    values = features(ROWS)
    names = []
    for metric in (sklearn.metrics.roc_auc_score, sklearn.metrics.log_loss):
        out_dir = tmp_path / metric.__name__
        hook = smd.Hook(out_dir, save_config=EVERY, include_collections=["losses"])
        model = xgboost.XGBClassifier(
            n_estimators=2, max_depth=2, n_jobs=1, callbacks=[hook], eval_metric=metric
        )
        model.fit(values, labels(values), eval_set=[(values, labels(values))], verbose=False)
        hook.close()
        names += smd.create_trial(out_dir).tensor_names(collection="losses")
    assert "validation_0-log_loss" in names
    assert "validation_0-roc_auc_score" not in names


def test_cross_validation_has_means_and_standard_deviations(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["losses"])
    metrics = ["auc", "ndcg@3-", "logloss"]
    params = {**BINARY, "eval_metric": metrics}
    result = xgboost.cv(params, matrix(ROWS), 3, nfold=3, seed=0, as_pandas=False, callbacks=[hook])
    hook.close()
    trial = smd.create_trial(tmp_path)
    names = [f"{data}-{metric}" for data in ("train", "test") for metric in metrics]
    assert trial.tensor_names(collection="metrics") == sorted(
        [*names, *[f"{name}-std" for name in names]]
    )
    assert trial.tensor_names(collection="losses") == ["test-logloss", "train-logloss"]
    for name in names:
        for step in range(3):
            assert trial.tensor(name).value(step).tolist() == [result[f"{name}-mean"][step]]
            assert trial.tensor(f"{name}-std").value(step).tolist() == [result[f"{name}-std"][step]]


@pytest.mark.parametrize("name", ["train", "validation_0", "held.out", "v/1", "eval数", "labels"])
def test_data_sets_may_be_called_what_xgboost_takes(tmp_path: Path, name: str) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY)
    data, result = matrix(ROWS), dict[str, Any]()
    params = {**BINARY, "eval_metric": ["auc", "error@0.3", "map@3-"]}
    train(hook, 2, params, data, evals=[(data, name)], evals_result=result)
    hook.close()
    trial = smd.create_trial(tmp_path)
    names = [f"{name}-{metric}" for metric in ("auc", "error@0.3", "map@3-")]
    assert trial.tensor_names(collection="metrics") == names
    assert trial.tensor_names(collection="losses") == [f"{name}-error@0.3"]
    for each, metric in zip(names, ("auc", "error@0.3", "map@3-"), strict=True):
        assert trial.tensor(each).value(1)[0] == result[name][metric][1]


def test_dash_in_a_name_does_not_make_a_metric(tmp_path: Path) -> None:
    data = busy_matrix(["train-auc", "a-b"])
    hook = smd.Hook(
        tmp_path, save_all=True, save_config=EVERY, train_data=data, validation_data=data,
        hyperparameters={"eval-metric": "x", "a-b": 1},
    )  # fmt: skip
    hook.save_scalar("val-loss", 1.0)
    train(hook, 2, data=data)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.has_tensor("scalar/val-loss")
    assert trial.has_tensor("hyperparameters/eval-metric")
    assert trial.tensor_names(collection="metrics") == METRICS
    assert trial.tensor_names(collection="losses") == METRICS
    assert trial.tensor_names(collection="scalars") == ["scalar/val-loss"]


# ---- collections


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, METRICS),
        ({"include_collections": []}, METRICS),
        ({"include_collections": "losses"}, METRICS),
        ({"include_collections": ["hyperparameters"]}, [*METRICS, *HYPERPARAMETERS]),
        ({"include_collections": ["predictions"]}, [*METRICS, "predictions"]),
        ({"include_collections": ["labels"]}, [*METRICS, "labels"]),
        ({"include_collections": ["average_shap"]}, [*METRICS, *AVERAGES]),
        ({"include_collections": ["full_shap"]}, [*METRICS, *ROWS_OF_SHAP]),
        ({"include_collections": ["trees"]}, [*METRICS, *TREES]),
        ({"include_collections": ["labels", ["predictions"]]}, [*METRICS, *DATA]),
        ({"include_collections": ["default"]}, METRICS),
        ({"include_regex": "^predictions$"}, [*METRICS, "predictions"]),
        ({"include_regex": ["shap/f1$", "trees/Gain"]},
         [*METRICS, "average_shap/f1", "full_shap/f1", "trees/Gain"]),
        ({"include_regex": "_shap/f"}, [*METRICS, *AVERAGES, *ROWS_OF_SHAP[1:]]),
    ],
    ids=str,
)  # fmt: skip
def test_the_names_saved(tmp_path: Path, options: dict[str, Any], expected: list[str]) -> None:
    trial = run(tmp_path, **options)
    assert trial.tensor_names() == sorted(expected)
    for name in expected:
        assert trial.tensor(name).steps() == [0, 1, 2], name


def test_all_collections_and_everything(tmp_path: Path) -> None:
    expected = [*METRICS, *HYPERPARAMETERS, *DATA, *AVERAGES, *ROWS_OF_SHAP, *TREES]
    trial = run(tmp_path / "all", include_collections=["all"])
    assert trial.tensor_names() == sorted([*expected, *IMPORTANCES])
    trial = run(tmp_path / "save_all", save_all=True)
    biases = ["average_shap/bias", "full_shap/bias"]
    assert trial.tensor_names() == sorted([*expected, *IMPORTANCES, *biases])


def test_the_tensors_of_every_collection(tmp_path: Path) -> None:
    trial = run(tmp_path, save_all=True)
    found = {name: trial.tensor_names(collection=name) for name in trial.collections()}
    assert found["all"] == trial.tensor_names()
    assert {name: names for name, names in found.items() if names and name != "all"} == {
        "metrics": METRICS,
        "losses": METRICS,
        "hyperparameters": sorted(HYPERPARAMETERS),
        "predictions": ["predictions"],
        "labels": ["labels"],
        "feature_importance": sorted(IMPORTANCES),
        "average_shap": AVERAGES,
        "full_shap": ROWS_OF_SHAP,
        "trees": sorted(TREES),
    }
    by_collection = smd.Collection("mine", include_regex="^trees/[GC]")
    assert trial.tensor_names(collection=by_collection) == [
        *("trees/Category", "trees/Cover", "trees/Gain"),
    ]
    assert trial.tensor_names(step=1, collection="labels") == ["labels"]
    assert trial.tensor_names(regex="^full_shap$") == ["full_shap"]


def test_collections_file_lists_tensors(tmp_path: Path) -> None:
    run(tmp_path, include_collections=["average_shap", "trees", "losses"])
    assert collections_file(tmp_path)["_meta"]["num_workers"] == 1
    file = collections_file(tmp_path)["collections"]
    assert sorted(file["average_shap"]["tensor_names"]) == AVERAGES
    assert sorted(file["trees"]["tensor_names"]) == sorted(TREES)
    assert file["metrics"]["tensor_names"] == file["losses"]["tensor_names"] == METRICS
    assert file["full_shap"]["tensor_names"] == []
    for name, regexes in smd.Hook.adapter_class.default_collections.items():
        assert file[name]["include_regex"] == list(regexes), name
        for regex in regexes:
            re.compile(regex)


def test_importances_that_come_later_are_in_the_collections_file(tmp_path: Path) -> None:
    # The first tree has one feature; others follow.
    data = busy_matrix(PLAIN)
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["feature_importance"])
    train(hook, 12, {**BINARY, "max_depth": 1}, data)
    hook.close()
    trial = smd.create_trial(tmp_path)
    early = trial.tensor_names(step=0, collection="feature_importance")
    late = trial.tensor_names(step=11, collection="feature_importance")
    assert len(early) == len(KINDS)
    assert set(early) < set(late)
    names = collections_file(tmp_path)["collections"]["feature_importance"]["tensor_names"]
    assert sorted(names) == late


def test_custom_collections(tmp_path: Path) -> None:
    def change(hook: smd.Hook) -> None:
        hook.get_collection("gains").include("^feature_importance/(total_)?gain/")
        shapes = smd.Collection("some", ["^trees/", "predictions"], exclude_regex="/(Yes|No)$")
        shapes.save_config = smd.SaveConfig(save_interval=2)
        hook.add_collection(shapes)
        hook.add_to_collection("one", "average_shap/f4")

    trial = run(tmp_path, change=change, include_collections=["gains", "some", "one"])
    gains = [f"feature_importance/{kind}/{name}" for kind in ("gain", "total_gain")
             for name in PLAIN]  # fmt: skip
    some = ["predictions", *[name for name in TREES if name not in ("trees/Yes", "trees/No")]]
    assert trial.tensor_names(collection="gains") == sorted(gains)
    assert trial.tensor_names(collection="some") == sorted(some)
    assert trial.tensor_names(collection="one") == ["average_shap/f4"]
    assert trial.tensor_names() == sorted([*METRICS, *gains, *some, "average_shap/f4"])
    assert trial.tensor("predictions").steps() == [0, 2]
    assert trial.tensor("average_shap/f4").steps() == [0, 1, 2]


def test_collection_that_is_not_included_is_not_saved(tmp_path: Path) -> None:
    trial = run(tmp_path, change=lambda hook: hook.get_collection("mine").include("predictions"))
    assert trial.tensor_names() == METRICS


def test_empty_collection_is_rejected(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, include_collections=["mistyped"])
    with pytest.raises(InvalidCollectionConfiguration, match="mistyped"):
        train(hook, 1)


def test_metrics_are_turned_off_by_a_schedule_that_ends_at_once(tmp_path: Path) -> None:
    trial = run(
        tmp_path, include_collections=["labels"],
        change=lambda hook: setattr(hook.get_collection("metrics"), "save_config", OFF),
    )  # fmt: skip
    assert trial.tensor_names() == ["labels"]


def test_one_metric_without_the_others(tmp_path: Path) -> None:
    data = matrix(ROWS)
    hook = smd.Hook(tmp_path, save_config=EVERY, include_regex="^train-auc$")
    hook.get_collection("metrics").save_config = OFF
    train(hook, 2, {**BINARY, "eval_metric": ["auc", "aucpr", "logloss"]}, data)
    hook.close()
    assert smd.create_trial(tmp_path).tensor_names() == ["train-auc"]


def test_losses_have_their_own_save_schedule(tmp_path: Path) -> None:
    data = matrix(ROWS)
    hook = smd.Hook(
        tmp_path, include_collections=["losses"], save_config=smd.SaveConfig(save_interval=3)
    )
    hook.get_collection("losses").save_config = EVERY
    train(hook, 6, {**BINARY, "eval_metric": ["auc", "logloss"]}, data)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor("train-auc").steps() == [0, 3]
    assert trial.tensor("train-logloss").steps() == [0, 1, 2, 3, 4, 5]


def test_collections_of_the_module_are_those_of_the_hook(tmp_path: Path) -> None:
    smd.get_collection("gains").include("^feature_importance/gain/f1$")
    smd.add_to_default_collection("labels")
    trial = run(tmp_path, include_collections=["gains", "default"])
    assert trial.tensor_names() == sorted([*METRICS, "feature_importance/gain/f1", "labels"])


def test_a_collection_may_save_reductions(tmp_path: Path) -> None:
    def change(hook: smd.Hook) -> None:
        config = ReductionConfig(reductions=["mean", "max"], abs_reductions=["max"])
        hook.get_collection("predictions").reduction_config = config
        hook.get_collection("full_shap").reduction_config = config

    trial = run(tmp_path, change=change, include_collections=["predictions", "full_shap", "labels"])
    saved = trial.tensor("predictions")
    assert sorted(saved.reduction_values(2)) == [("max", False), ("max", True), ("mean", False)]
    data = busy_matrix(PLAIN)
    booster = train(None, 3, data=data)
    predictions = booster.predict(data)
    shap = booster.predict(data, pred_contribs=True)
    np.testing.assert_allclose(saved.reduction_value(2, "mean"), predictions.mean(dtype=float))
    np.testing.assert_allclose(saved.reduction_value(2, "max"), predictions.max())
    column = trial.tensor("full_shap/f2")
    np.testing.assert_allclose(column.reduction_value(2, "max", abs=True), abs(shap[:, 2]).max())
    assert trial.tensor("labels").value(2).shape == (ROWS,)


# ---- what others save at a round


class Saver(TrainingCallback):
    """Saves the number of the round at its beginning, if that is wanted, and at its end."""

    def __init__(self, hook: smd.Hook, name: str, begin: bool = False) -> None:
        self.hook, self.name, self.begin = hook, name, begin

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if self.begin:
            self._save("begin", epoch)
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._save("end", epoch)
        return False

    def _save(self, when: str, epoch: int) -> None:
        self.hook.save_scalar(f"{self.name}/{when}", epoch)
        self.hook.save_tensor(f"{self.name}/{when}/tensor", np.full(3, epoch), "mine")


def test_values_saved_in_callbacks_belong_to_their_round(tmp_path: Path) -> None:
    data = matrix(ROWS)
    hook = smd.Hook(tmp_path, save_config=smd.SaveConfig(save_interval=3))
    mine = smd.Collection("mine", "/tensor$", save_config=smd.SaveConfig(save_interval=2))
    hook.add_collection(mine)
    before, after = Saver(hook, "before"), Saver(hook, "after", begin=True)
    xgboost.train(
        BINARY, data, 7, evals=[(data, "train")], verbose_eval=False,
        callbacks=[before, hook, after],
    )  # fmt: skip
    hook.close()
    trial = smd.create_trial(tmp_path)
    names = ["before/end", "after/begin", "after/end"]
    for name in names:
        scalar, tensor = trial.tensor(f"scalar/{name}"), trial.tensor(f"{name}/tensor")
        # Numbers at every round; tensors when their collection has its turn.
        assert scalar.steps() == list(range(7)), name
        assert tensor.steps() == [0, 2, 4, 6], name
        for step in range(7):
            assert scalar.value(step).tolist() == [step]
        for step in (0, 2, 4, 6):
            assert tensor.value(step).tolist() == [step] * 3
    assert trial.tensor_names(collection="mine") == sorted(f"{name}/tensor" for name in names)
    assert trial.tensor_names(collection="scalars") == sorted(f"scalar/{name}" for name in names)
    assert trial.tensor("train-logloss").steps() == [0, 3, 6]


def test_values_saved_in_objectives_and_metrics_belong_to_their_round(tmp_path: Path) -> None:
    data = matrix(ROWS)
    hook = smd.Hook(tmp_path)
    rounds = {"objective": 0, "metric": 0}

    def save(name: str) -> None:
        hook.save_scalar(name, rounds[name])
        rounds[name] += 1

    def objective(predictions: Array, data: Any) -> tuple[Array, Array]:
        save("objective")
        return predictions - data.get_label(), np.ones_like(predictions)

    def metric(predictions: Array, data: Any) -> tuple[str, float]:
        save("metric")
        return "half", 0.5

    train(hook, 4, {"nthread": 1}, data, obj=objective, custom_metric=metric)
    hook.close()
    trial = smd.create_trial(tmp_path)
    for name in rounds:
        found = trial.tensor(f"scalar/{name}")
        assert [found.value(step).tolist() for step in found.steps()] == [[0], [1], [2], [3]]
        assert found.steps() == [0, 1, 2, 3]


def test_values_saved_before_training_belong_to_its_first_round(tmp_path: Path) -> None:
    data = matrix(ROWS)
    hook = smd.Hook(tmp_path, save_config=EVERY)
    hook.save_scalar("rows", data.num_row())
    hook.save_tensor("weights", np.arange(4.0), "mine")
    train(hook, 3, data=data)
    hook.save_scalar("done", 1)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor("scalar/rows").steps() == [0]
    assert trial.tensor("scalar/rows").value(0).tolist() == [ROWS]
    assert trial.tensor("weights").value(0).tolist() == [0, 1, 2, 3]
    assert trial.tensor("scalar/done").steps() == [2]
    assert trial.tensor_names(collection="mine") == ["weights"]


def test_user_tensors_keep_their_names_and_collections(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY)
    hook.save_tensor("a b/c", np.eye(2), ["first", "second"])
    hook.save_scalar("learning rate", 0.1, sm_metric=True)
    train(hook, 1)
    hook.close()
    trial = smd.create_trial(tmp_path)
    assert trial.tensor_names(collection="first") == ["a b/c"]
    assert trial.tensor_names(collection="second") == ["a b/c"]
    assert trial.tensor_names(collection="sm_metrics") == ["scalar/learning rate"]
    file = collections_file(tmp_path)["collections"]
    assert file["first"]["tensor_names"] == file["second"]["tensor_names"] == ["a b/c"]
    assert file["scalars"]["tensor_names"] == ["scalar/learning rate"]
