"""Hooks created from a JSON config, and what they save in training."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from tests.tensorflow.models import SEED_WARNING

import smdebug.tensorflow as smd
from smdebug.exceptions import (
    InvalidCollectionConfiguration,
    SMDebugError,
    SMDebugValueError,
    TensorUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from smdebug.trials import Trial

keras: Any = tf.keras
TRAIN, EVAL = smd.modes.TRAIN, smd.modes.EVAL
KERNEL, BIAS = "dense/weights/dense/kernel:0", "dense/weights/dense/bias:0"
GRADIENT = "gradients/dense/kernelGrad"
STEPS = 25

# Keras calls numpy 2 in the way of numpy 1.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning:keras"),
    pytest.mark.filterwarnings(SEED_WARNING),
]


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


def train(hook: smd.KerasHook, steps: int = STEPS, **more: Any) -> Any:
    """Trains, without functions: that takes less time than to trace them."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, name="dense")])
    model.compile("sgd", "mse", run_eagerly=True)
    x = np.ones((steps, 2), np.float32)
    model.fit(x, x[:, :1], batch_size=1, verbose=0, shuffle=False, callbacks=[hook], **more)
    return model


def run(path: Path, steps: int = STEPS, **more: Any) -> Trial:
    hook = smd.KerasHook.create_from_json_file(path)
    train(hook, steps, **more)
    hook.close()
    return smd.create_trial(hook.out_dir)


def steps_of(trial: Trial, tensor: str, mode: Any = TRAIN) -> list[int]:
    try:
        return list(trial.tensor(tensor).steps(mode))
    except TensorUnavailable:
        return []


# ---- what makes a hook of it


def test_all_ways_to_create_a_hook_are_equivalent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = json_config_file(tmp_path, {"save_interval": 3}, {"weights": None})
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    ways: list[Callable[[], Any]] = [
        lambda: smd.KerasHook.create_from_json_file(path),
        lambda: smd.KerasHook.create_from_json_file(str(path)),
        lambda: smd.KerasHook.create_from_json_file(),
        lambda: smd.get_hook("keras", path, True),
        lambda: smd.get_hook(hook_type="keras", create_if_not_exists=True),
    ]
    for way in ways:
        smd.del_hook()
        hook = way()
        assert type(hook) is smd.KerasHook
        assert smd.get_hook() is smd.get_hook("keras") is hook
        assert hook.include_collections == {
            *("losses", "metrics", "sm_metrics", "searchable_scalars", "weights"),
        }
        assert hook.save_config.get_save_config(TRAIN).save_interval == 3
        hook.close()


def test_hook_type_created_from_a_json_config(tmp_path: Path) -> None:
    path = json_config_file(tmp_path)
    assert type(smd.get_hook("session", path, True)) is smd.SessionHook
    # Of another kind: it is forgotten, and another one made.
    assert type(smd.get_hook("keras", path, True)) is smd.KerasHook


def test_no_hook_without_a_json_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(tmp_path / "none.json"))
    assert smd.get_hook("keras", create_if_not_exists=True) is None
    with pytest.raises(FileNotFoundError, match=r"none\.json"):
        smd.KerasHook.create_from_json_file()


def test_no_hook_with_smdebug_disabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = json_config_file(tmp_path)
    monkeypatch.setenv("USE_SMDEBUG", "false")
    assert smd.get_hook("keras", path, True) is None
    monkeypatch.setenv("USE_SMDEBUG", "true")
    assert smd.get_hook("keras", path, True) is not None


def test_json_config_is_not_used_without_create_if_not_exists(tmp_path: Path) -> None:
    assert smd.get_hook("keras", json_config_file(tmp_path)) is None
    assert smd.get_hook(json_config_path=json_config_file(tmp_path)) is None


# ---- when and what


@pytest.mark.parametrize(
    ("hook", "collection", "loss", "kernel"),
    [
        (None, None, [0], [0]),
        ({"save_interval": "10"}, None, [0, 10, 20], [0, 10, 20]),
        ({"save_interval": 10}, {"save_interval": 12}, [0, 10, 20], [0, 12, 24]),
        ({"train.save_interval": 8, "eval.save_interval": 1}, None, [0, 8, 16, 24], [0, 8, 16, 24]),
        ({"save_interval": 10}, {"train.save_interval": 8}, [0, 10, 20], [0, 8, 16, 24]),
        ({"save_interval": 10}, {"save_steps": "3, 7", "end_step": "15"}, [0, 10, 20],
         [0, 3, 7, 10]),
        ({"save_interval": 10}, {"end_step": 0}, [0, 10, 20], []),
    ],
)  # fmt: skip
def test_schedules(
    tmp_path: Path, hook: Any, collection: Any, loss: list[int], kernel: list[int]
) -> None:
    trial = run(json_config_file(tmp_path, hook, {"weights": collection}))
    # What the epoch came to is always saved.
    assert steps_of(trial, "loss") == sorted({*loss, STEPS - 1})
    assert steps_of(trial, KERNEL) == kernel


def test_all_collections_that_are_listed_are_saved(tmp_path: Path) -> None:
    names = ["weights", "biases", "gradients", "layers", "inputs", "outputs"]
    path = json_config_file(tmp_path, None, dict.fromkeys([*names, "optimizer_variables"]))
    trial = run(path, 2)
    for name in [*names, "optimizer_variables", "losses", "metrics"]:
        assert trial.tensor_names(collection=name), name
    assert trial.tensor_names(collection="layers") == ["dense/inputs", "dense/outputs"]


def test_modes(tmp_path: Path) -> None:
    parameters = {"train.save_interval": "3", "eval.save_interval": "2", "eval.start_step": "1"}
    x = np.ones((6, 2), np.float32)
    path = json_config_file(tmp_path, parameters, {"layers": None, "gradients": None})
    trial = run(path, 7, validation_data=(x, x[:, :1]), validation_batch_size=1)
    assert steps_of(trial, "dense/outputs", TRAIN) == [0, 3, 6]
    assert steps_of(trial, "dense/outputs", EVAL) == [2, 4]
    assert steps_of(trial, GRADIENT, TRAIN) == [0, 3, 6]
    assert steps_of(trial, GRADIENT, EVAL) == []


def test_regexes_and_reductions(tmp_path: Path) -> None:
    parameters = {"include_regex": "Grad$", "save_interval": 1, "reductions": "max,abs_mean"}
    collections = {
        "mine": {"include_regex": "outputs$,labels"},
        "biases": {"reductions": "mean", "save_raw_tensor": "true"},
    }
    hook = smd.KerasHook.create_from_json_file(json_config_file(tmp_path, parameters, collections))
    model = train(hook, 1)
    hook.close()
    trial = smd.create_trial(tmp_path / "run")
    assert trial.tensor_names(collection="default") == ["gradients/dense/biasGrad", GRADIENT]
    assert trial.tensor_names(collection="mine") == ["dense/outputs", "labels"]
    found = trial.tensor("labels").reduction_values(0)
    assert found == {("max", False): 1.0, ("mean", True): 1.0}
    assert trial.tensor(BIAS).value(0).tolist() == model.layers[-1].get_weights()[1].tolist()
    assert set(trial.tensor(BIAS).reduction_values(0)) == {("mean", False)}


def test_everything(tmp_path: Path) -> None:
    trial = run(json_config_file(tmp_path, {"save_all": "true"}), 1)
    assert {KERNEL, BIAS, GRADIENT, "dense/outputs", "inputs", "predictions", "loss"} <= set(
        trial.tensor_names()
    )


def test_the_file_of_a_job_as_sagemaker_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "debughookconfig.json"
    collections = [
        {"CollectionName": "weights", "CollectionParameters": {"save_interval": "2"}},
        {"CollectionName": "gradients", "CollectionParameters": {"save_interval": "4"}},
        {"CollectionName": "biases"},
    ]
    path.write_text(
        json.dumps(
            {
                "S3OutputPath": "s3://bucket/prefix",
                "LocalPath": str(tmp_path / "run"),
                "HookParameters": {"save_interval": "6", "include_workers": "one"},
                "CollectionConfigurations": collections,
                "RuleConfigurations": [],
            }
        )
    )
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    hook = smd.get_hook("keras", create_if_not_exists=True)
    assert isinstance(hook, smd.KerasHook)
    train(hook, 13)
    hook.close()
    # The files that AWS's own tools read; the platform says when the job is over.
    assert list((tmp_path / "run" / "index").rglob("*.json"))
    assert not (tmp_path / "run" / "training_job_end.ts").exists()
    monkeypatch.delenv("TRAINING_JOB_NAME")
    trial = smd.create_trial(tmp_path / "run")
    assert trial.tensor(KERNEL).steps(TRAIN) == [0, 2, 4, 6, 8, 10, 12]
    assert trial.tensor(GRADIENT).steps(TRAIN) == [0, 4, 8, 12]
    assert trial.tensor(BIAS).steps(TRAIN) == [0, 6, 12]


def test_rules_of_a_file(tmp_path: Path) -> None:
    path = json_config_file(tmp_path, {"rules": "NonFinite", "save_interval": 1})
    hook = smd.KerasHook.create_from_json_file(path)
    train(hook, 3)
    hook.close()
    assert [each.rule for each in hook.rule_report().outcomes] == ["NonFinite"]
    assert not hook.findings()


# ---- what makes no sense


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        ("{", ["job.json", "JSON"]),
        ('{"HookParameters": {"save_interval": "often"}}', ["save_interval", "'often'"]),
        ('{"HookParameters": {"save_intervall": 1}}', ["save_intervall", "Did you mean"]),
        ('{"HookParameters": {"reductions": "average"}}', ["reductions", "average"]),
        ('{"CollectionConfigurations": [{}]}', ["CollectionConfigurations[0]", "CollectionName"]),
        (
            '{"HookParameters": {"before_update": true, "rules": "NonFinite"}}',
            ["before_update", "must be False"],
        ),
    ],
)
def test_invalid_json_config(tmp_path: Path, content: str, fragments: list[str]) -> None:
    path = tmp_path / "job.json"
    path.write_text(content)
    with pytest.raises(SMDebugValueError) as caught:
        smd.KerasHook.create_from_json_file(path)
    assert [each for each in fragments if each not in str(caught.value)] == []
    smd.del_hook()
    with pytest.raises(SMDebugValueError):
        smd.get_hook("keras", path, True)


def test_a_collection_that_keras_does_not_have(tmp_path: Path) -> None:
    hook = smd.KerasHook.create_from_json_file(json_config_file(tmp_path, None, {"trees": None}))
    with pytest.raises(InvalidCollectionConfiguration, match="trees"):
        train(hook, 1)


def test_a_directory_with_a_finished_run(tmp_path: Path) -> None:
    path = json_config_file(tmp_path)
    run(path, 1)
    with pytest.raises(SMDebugError, match="finished run"):
        smd.KerasHook.create_from_json_file(path)
