"""Hooks created from a JSON config, and what they save in training."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.xgboost import data

import smdebug.xgboost as smd
from smdebug import ReductionConfig
from smdebug.exceptions import (
    InvalidCollectionConfiguration,
    SMDebugError,
    SMDebugValueError,
    TensorUnavailable,
    TensorUnavailableForStep,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from smdebug.trials import Trial

ROUNDS = 25


def json_config_file(
    tmp_path: Path, hook: Any = None, collections: Any = None, name: str = "job.json", **more: Any
) -> Path:
    """Write a JSON config of a run in `tmp_path / "run"`."""
    content = {"LocalPath": str(tmp_path / "run"), **more}
    if hook is not None:
        content["HookParameters"] = hook
    if collections is not None:
        content["CollectionConfigurations"] = [
            {"CollectionName": key, "CollectionParameters": value}
            for key, value in collections.items()
        ]
    path = tmp_path / name
    path.write_text(json.dumps(content))
    return path


def run(path: Path, rounds: int = ROUNDS, **given: Any) -> Trial:
    """Trains with the hook that a file describes, and opens the run."""
    hook = smd.Hook.create_from_json_file(path)
    for name, value in given.items():
        setattr(hook, name, value)
    data.train(hook, rounds)
    hook.close()
    return smd.create_trial(hook.out_dir)


def steps_of(trial: Trial, tensor: str) -> list[int]:
    """The steps a tensor has; none when it was never saved."""
    try:
        return list(trial.tensor(tensor).steps())
    except TensorUnavailable:
        return []


# ---- what makes a hook of it


def test_all_ways_to_create_a_hook_are_equivalent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = json_config_file(tmp_path, {"save_interval": 3}, {"trees": None})
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    ways: list[Callable[[], smd.Hook | None]] = [
        lambda: smd.Hook.create_from_json_file(path),
        lambda: smd.Hook.create_from_json_file(str(path)),
        lambda: smd.Hook.create_from_json_file(),
        lambda: smd.Hook.hook_from_config(path),
        lambda: smd.Hook.hook_from_config(),
        lambda: smd.get_hook(path),
        lambda: smd.get_hook(str(path)),
        lambda: smd.get_hook(),
    ]
    for way in ways:
        smd.del_hook()
        hook = way()
        assert isinstance(hook, smd.Hook)
        assert smd.get_hook() is hook
        assert hook.include_collections == {"metrics", "trees"}
        assert hook.save_config.get_save_config(smd.modes.GLOBAL).save_interval == 3
        hook.close()


def test_existing_hook_is_returned(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path / "other")
    assert smd.get_hook(json_config_file(tmp_path)) is hook


def test_no_hook_without_a_json_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(tmp_path / "none.json"))
    assert smd.get_hook() is None
    assert smd.get_hook(tmp_path / "none.json") is None
    for make in (smd.Hook.create_from_json_file, smd.Hook.hook_from_config):
        with pytest.raises(FileNotFoundError, match=r"none\.json"):
            make()


def test_no_hook_with_smdebug_disabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = json_config_file(tmp_path)
    monkeypatch.setenv("USE_SMDEBUG", "false")
    assert smd.get_hook(path) is None
    monkeypatch.setenv("USE_SMDEBUG", "true")
    assert smd.get_hook(path) is not None


def test_default_out_dir_is_that_of_sagemaker(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text("{}")
    hook = smd.Hook.create_from_json_file(path)
    assert hook.out_dir == "/opt/ml/output/tensors"
    assert hook.has_default_configuration()


def test_get_hook_reads_the_json_config_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = json_config_file(tmp_path, collections={"hyperparameters": None, "predictions": None})
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    matrix = data.matrix()
    hook = smd.get_hook()
    assert hook is not None
    hook.hyperparameters = {"eta": 0.3}
    hook.validation_data = matrix
    model = data.train(hook, 11)
    hook.close()
    trial = smd.create_trial(tmp_path / "run")
    assert trial.steps() == [0, 10]
    assert trial.tensor("hyperparameters/eta").value(10).tolist() == [0.3]
    np.testing.assert_array_equal(trial.tensor("predictions").value(10), model.predict(matrix))


# ---- when


@pytest.mark.parametrize(
    ("hook", "collection", "metrics", "trees"),
    [
        # Where the file gives no interval it is 10, at both levels.
        (None, None, [0, 10, 20], [0, 10, 20]),
        ({}, {}, [0, 10, 20], [0, 10, 20]),
        (None, {"start_step": 5}, [0, 10, 20], [10, 20]),
        (None, {"end_step": "15"}, [0, 10, 20], [0, 10]),
        (None, {"save_steps": "3, 7"}, [0, 10, 20], [0, 3, 7, 10, 20]),
        ({"start_step": 5}, None, [10, 20], [10, 20]),
        ({"end_step": 15}, {"start_step": 5}, [0, 10], [10]),
        # The collection wins over the hook, and within each the mode over the plain field.
        ({"save_interval": "5"}, None, [0, 5, 10, 15, 20], [0, 5, 10, 15, 20]),
        ({"save_interval": 5}, {"save_interval": 12}, [0, 5, 10, 15, 20], [0, 12, 24]),
        ({"global.save_interval": 8}, None, [0, 8, 16, 24], [0, 8, 16, 24]),
        ({"save_interval": 5, "global.save_interval": 8}, None, [0, 8, 16, 24], [0, 8, 16, 24]),
        ({"global.save_interval": 8}, {"save_interval": 12}, [0, 8, 16, 24], [0, 12, 24]),
        ({"global.save_interval": 8}, {"start_step": 9}, [0, 8, 16, 24], [16, 24]),
        (
            {"save_interval": 5},
            {"save_interval": 12, "global.save_interval": 20},
            [0, 5, 10, 15, 20],
            [0, 20],
        ),
        # All rounds are of mode GLOBAL: what is said of others has no effect.
        ({"train.save_interval": 1, "eval.save_interval": 2}, None, [0, 10, 20], [0, 10, 20]),
        (None, {"train.save_interval": 1}, [0, 10, 20], [0, 10, 20]),
        # A null resets the value of the hook.
        ({"save_interval": 5}, {"save_interval": None}, [0, 5, 10, 15, 20], [0, 10, 20]),
        ({"save_interval": None}, None, [0, 10, 20], [0, 10, 20]),
        # Off.
        (None, {"end_step": 0}, [0, 10, 20], []),
    ],
    ids=str,
)
def test_schedules_are_merged_field_by_field(
    tmp_path: Path, hook: Any, collection: Any, metrics: list[int], trees: list[int]
) -> None:
    trial = run(json_config_file(tmp_path, hook, {"trees": collection}))
    assert steps_of(trial, "train-logloss") == metrics
    assert steps_of(trial, "trees/Gain") == trees


def test_default_collections_can_be_disabled(tmp_path: Path) -> None:
    trial = run(json_config_file(tmp_path, None, {"metrics": {"end_step": 0}, "trees": None}))
    assert steps_of(trial, "train-logloss") == []
    assert steps_of(trial, "trees/Gain") == [0, 10, 20]


def test_when_nan_with_a_metric(tmp_path: Path) -> None:
    hook = smd.Hook.create_from_json_file(
        json_config_file(tmp_path, {"when_nan": "train-odd"}, {"trees": None})
    )
    numbers = iter([1.0, 1.0, 1.0, float("nan"), 1.0])
    data.train(hook, 5, custom_metric=lambda predictions, matrix: ("odd", next(numbers)))
    hook.close()
    trial = smd.create_trial(tmp_path / "run")
    assert steps_of(trial, "train-odd") == [0, 3]
    assert steps_of(trial, "trees/Gain") == [0, 3]


# ---- what


def test_all_listed_collections_are_saved_beside_the_metrics(tmp_path: Path) -> None:
    names = ["labels", "predictions", "feature_importance", "average_shap", "full_shap", "trees"]
    path = json_config_file(tmp_path, None, dict.fromkeys([*names, "hyperparameters", "losses"]))
    matrix = data.matrix(50)
    trial = run(
        path, 1, train_data=matrix, validation_data=matrix, hyperparameters={"max_depth": 3}
    )
    for name in [*names, "hyperparameters", "losses", "metrics"]:
        assert trial.tensor_names(collection=name), name


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"HookParameters": None, "CollectionConfigurations": None},
        {"HookParameters": {}, "CollectionConfigurations": []},
    ],
)
def test_nothing_listed_saves_metrics(tmp_path: Path, content: dict[str, Any]) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"LocalPath": str(tmp_path / "run"), **content}))
    assert smd.Hook.create_from_json_file(path).has_default_configuration()
    trial = run(path, 11)
    assert trial.tensor_names() == ["train-logloss"]
    assert trial.steps() == [0, 10]


def test_everything(tmp_path: Path) -> None:
    matrix = data.matrix(50)
    for number, value in enumerate([True, "true", "True", 1]):
        path = json_config_file(
            tmp_path, {"save_all": value}, LocalPath=str(tmp_path / f"run{number}")
        )
        trial = run(path, 1, train_data=matrix, validation_data=matrix, hyperparameters={"a": 1})
        # With what no collection but this one has.
        expected = {"labels", "predictions", "full_shap", "average_shap/bias", "trees/Gain"}
        assert expected <= set(trial.tensor_names())


def test_regexes(tmp_path: Path) -> None:
    regexes = r"trees/Gain$, ^feature_importance/weight/f[01]$"
    trial = run(json_config_file(tmp_path, {"include_regex": regexes}))
    assert trial.tensor_names(collection="default") == [
        "feature_importance/weight/f0", "feature_importance/weight/f1", "trees/Gain",
    ]  # fmt: skip


def test_regexes_are_added_to_those_a_collection_has(tmp_path: Path) -> None:
    collections = {
        "losses": {"include_regex": "trees/Gain"},
        "mine": {"include_regex": "trees/(Cover|ID)$"},
    }
    trial = run(json_config_file(tmp_path, None, collections))
    assert trial.tensor_names(collection="losses") == ["train-logloss", "trees/Gain"]
    assert trial.tensor_names(collection="mine") == ["trees/Cover", "trees/ID"]


def test_reductions_of_a_collection(tmp_path: Path) -> None:
    matrix = data.matrix(50)
    path = json_config_file(
        tmp_path, None, {"predictions": {"reductions": "mean, abs_max"}, "labels": None}
    )
    trial = run(path, 1, validation_data=matrix)
    predictions = data.train(rounds=1).predict(matrix).astype(np.float64)
    found = trial.tensor("predictions").reduction_values(0)
    assert found[("mean", False)] == pytest.approx(predictions.mean(), rel=1e-6)
    assert found[("max", True)] == pytest.approx(np.abs(predictions).max(), rel=1e-6)
    with pytest.raises(TensorUnavailableForStep):
        trial.tensor("predictions").value(0)
    np.testing.assert_array_equal(trial.tensor("labels").value(0), matrix.get_label())


def test_reductions_of_the_hook_are_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    matrix = data.matrix(50)
    path = json_config_file(tmp_path, {"reductions": "mean"}, {"predictions": None, "trees": None})
    trial = run(path, 1, validation_data=matrix)
    (message,) = [each.getMessage() for each in caplog.records if "reduction" in each.getMessage()]
    assert message.startswith("reduction_config has no effect in a hook for XGBoost")
    model = data.train(rounds=1)
    np.testing.assert_array_equal(trial.tensor("predictions").value(0), model.predict(matrix))
    assert trial.tensor("trees/Node").value(0).tolist() == list(model.trees_to_dataframe()["Node"])


def test_a_file_without_reductions_says_nothing_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = smd.Hook.create_from_json_file(json_config_file(tmp_path, {"save_interval": 1}))
    assert hook.reduction_config == ReductionConfig(save_raw_tensor=True)
    assert caplog.records == []


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_other_options_of_the_hook(tmp_path: Path, format: str) -> None:
    parameters = {"include_workers": "all", "format": format, "worker": "me", "on_error": "raise"}
    hook = smd.Hook.create_from_json_file(json_config_file(tmp_path, parameters))
    assert (hook.worker, hook.save_all_workers) == ("me", True)
    data.train(hook, 3)
    hook.close()
    assert smd.create_trial(tmp_path / "run").workers() == ["me"]
    suffix = "json" if format == "v1" else "parquet"
    assert list((tmp_path / "run" / "index").rglob(f"*.{suffix}"))


def test_a_dry_run(tmp_path: Path) -> None:
    hook = smd.Hook.create_from_json_file(json_config_file(tmp_path, {"dry_run": True}))
    assert hook.dry_run
    data.train(hook, 3)
    hook.close()
    assert not (tmp_path / "run" / "events").exists()
    assert not (tmp_path / "run" / "index").exists()


def test_rules_of_a_file(tmp_path: Path) -> None:
    path = json_config_file(tmp_path, {"rules": "TreeDepth:depth=1", "save_interval": 1})
    hook = smd.Hook.create_from_json_file(path)
    data.train(hook, 3)
    hook.close()
    found = hook.findings()
    assert found
    assert {each.rule for each in found} == {"TreeDepth"}


def test_in_a_sagemaker_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    hook = smd.Hook.create_from_json_file(
        json_config_file(tmp_path, {"save_interval": 1}, S3OutputPath="s3://somewhere/else")
    )
    data.train(hook, 3)
    hook.close()
    # The files that AWS's own tools read; the platform says when the job is over.
    assert list((tmp_path / "run" / "index").rglob("*.json"))
    assert not (tmp_path / "run" / "training_job_end.ts").exists()


def test_the_file_of_a_job_as_sagemaker_writes_it(tmp_path: Path) -> None:
    collections = [
        {"CollectionName": "metrics", "CollectionParameters": {"save_interval": "2"}},
        {"CollectionName": "feature_importance", "CollectionParameters": {"save_interval": "4"}},
        {"CollectionName": "average_shap"},
    ]
    path = tmp_path / "debughookconfig.json"
    path.write_text(
        json.dumps(
            {
                "S3OutputPath": "s3://bucket/prefix",
                "S3Path": "s3://bucket/prefix",
                "LocalPath": str(tmp_path / "run"),
                "HookParameters": {"save_interval": "6", "include_workers": "one"},
                "CollectionConfigurations": collections,
                "RuleConfigurations": [],
            }
        )
    )
    trial = run(path, 13, train_data=data.matrix(30))
    assert steps_of(trial, "train-logloss") == [0, 2, 4, 6, 8, 10, 12]
    assert steps_of(trial, "feature_importance/gain/f0") == [0, 4, 8, 12]
    assert steps_of(trial, "average_shap/f0") == [0, 6, 12]


# ---- what makes no sense


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        ("{", ["job.json", "JSON"]),
        ("[]", ["job.json", "JSON object", "list"]),
        ('{"HookParameters": {"save_interval": "often"}}', ["save_interval", "'often'"]),
        ('{"HookParameters": {"save_interval": 0}}', ["save_interval", "positive", "0"]),
        ('{"HookParameters": {"save_intervall": 1}}', ["save_intervall", "Did you mean"]),
        ('{"HookParameters": {"include_workers": "some"}}', ["include_workers", "one, all"]),
        ('{"HookParameters": {"save_all": "maybe"}}', ["save_all", "'maybe'"]),
        ('{"HookParameters": {"reductions": "average"}}', ["reductions", "average"]),
        ('{"CollectionConfigurations": [{}]}', ["CollectionConfigurations[0]", "CollectionName"]),
        ('{"CollectionConfigurations": {"trees": {}}}', ["CollectionConfigurations", "list"]),
        (
            '{"CollectionConfigurations": [{"CollectionName": "trees", '
            '"CollectionParameters": {"save_steps": "1,x"}}]}',
            ["'trees'", "save_steps", "'x'"],
        ),
        (
            '{"HookParameters": {"before_update": true, "rules": "TreeDepth"}}',
            ["before_update", "must be False"],
        ),
    ],
)
def test_invalid_json_config(tmp_path: Path, content: str, fragments: list[str]) -> None:
    path = tmp_path / "job.json"
    path.write_text(content)
    with pytest.raises(SMDebugValueError) as caught:
        smd.Hook.create_from_json_file(path)
    assert [each for each in fragments if each not in str(caught.value)] == []
    smd.del_hook()
    # It is not taken for a file that is not there.
    with pytest.raises(SMDebugValueError):
        smd.get_hook(path)


def test_a_rule_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(SMDebugError, match="Nonsense"):
        smd.Hook.create_from_json_file(json_config_file(tmp_path, {"rules": "Nonsense"}))


def test_collection_of_another_framework(tmp_path: Path) -> None:
    hook = smd.Hook.create_from_json_file(json_config_file(tmp_path, None, {"gradients": None}))
    with pytest.raises(InvalidCollectionConfiguration, match="gradients"):
        data.train(hook, 1)


def test_unsupported_keys_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parameters = {"train_data": "a.csv", "hyperparameters": {"eta": 1}, "save_interval": 1}
    hook = smd.Hook.create_from_json_file(json_config_file(tmp_path, parameters))
    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "ignoring unknown keys: train_data, hyperparameters" in record.getMessage()
    assert hook.train_data is None


def test_a_directory_with_a_finished_run(tmp_path: Path) -> None:
    path = json_config_file(tmp_path)
    run(path, 1)
    with pytest.raises(SMDebugError, match="finished run"):
        smd.Hook.create_from_json_file(path)
    smd.del_hook()
    with pytest.raises(SMDebugError, match="finished run"):
        smd.get_hook(path)
