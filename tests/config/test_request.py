"""The form of a request to SageMaker: a JSON config as its Python SDK makes it, all in strings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.hook.numpy_hook import NumpyHook

from smdebug.config.json_config import parse_json_config, read_json_config
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.core.collection_manager import CollectionManager
from smdebug.core.json_config import (
    add_collections_to_manager,
    collect_hook_config_params,
    create_hook_from_json_config,
)
from smdebug.exceptions import SMDebugValueError
from smdebug.hook.module_api import del_hook
from smdebug.mode_keys import ModeKeys
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What `DebuggerHookConfig._to_request_dict()` gives: values are strings, whatever they mean.
REQUEST: dict[str, Any] = {
    "S3OutputPath": "s3://bucket/debug/",
    "HookParameters": {
        "save_interval": "500", "train.save_interval": "100", "eval.end_step": "7",
        "save_steps": "1,2", "save_all": "true", "include_workers": "all",
        "include_regex": "relu,tanh", "reductions": "mean,abs_max,l2_norm",
        "save_raw_tensor": "false", "save_shape": "True", "export_tensorboard": "False",
        "dry_run": "false", "queue_bytes": "1000000", "flush_seconds": "2.5",
        "rules": "NonFinite,VanishingGradient:threshold=1e-6", "before_update": "false",
    },
    "CollectionConfigurations": [
        {"CollectionName": "gradients", "CollectionParameters": {"save_interval": "10"}},
        {"CollectionName": "losses", "CollectionParameters": {"eval.save_interval": "1"}},
        {"CollectionName": "custom", "CollectionParameters": {
            "include_regex": "conv,relu", "save_histogram": "false", "reductions": "min",
        }},
    ],
}  # fmt: skip

# A request for a job, or the description of one: the SDK's part is one among others.
WHOLE = {
    "TrainingJobName": "job",
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/models"},
    "DebugHookConfig": REQUEST,
    "DebugRuleConfigurations": [],
    "TensorBoardOutputConfig": {"S3OutputPath": "s3://bucket/tensorboard"},
}


@pytest.fixture(autouse=True)
def no_hook() -> Iterator[None]:
    yield
    del_hook()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")


def test_strings_are_converted() -> None:
    options = read_json_config(REQUEST).options
    assert options.save_all is True
    assert (options.export_tensorboard, options.dry_run) == (False, False)
    assert (options.queue_bytes, options.flush_seconds) == (1_000_000, 2.5)
    assert options.include_regex == ("relu", "tanh")
    assert options.include_collections == ("gradients", "losses", "custom")
    assert options.rules == ("NonFinite", "VanishingGradient:threshold=1e-6")
    assert set(options.reduction_config.names) == {"mean", "abs_max", "l2"}
    assert (options.reduction_config.save_raw_tensor, options.reduction_config.save_shape) == (
        False,
        True,
    )
    train = SaveConfigMode(100, save_steps=[1, 2])
    assert options.save_config.get_save_config(ModeKeys.TRAIN) == train
    evaluating = SaveConfigMode(500, end_step=7, save_steps=[1, 2])
    assert options.save_config.get_save_config(ModeKeys.EVAL) == evaluating


def test_dict_file_and_request_are_equivalent(tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    for form in (REQUEST, WHOLE):
        path.write_text(json.dumps(form))
        for source in (form, path, str(path)):
            job = read_json_config(source)
            assert job.options == read_json_config(REQUEST).options
            assert job.collections == read_json_config(REQUEST).collections


LOCAL = {"LocalPath": "here"}
S3 = {"S3OutputPath": "s3://bucket/debug/"}
DEFAULT = "/opt/ml/output/tensors"


@pytest.mark.parametrize(
    ("data", "elsewhere", "in_a_job"),
    [
        ({}, DEFAULT, DEFAULT),
        (LOCAL, "here", "here"),
        # In a SageMaker job the platform copies the directory; elsewhere nothing does.
        (S3, "s3://bucket/debug/", DEFAULT),
        ({**S3, "LocalPath": None}, "s3://bucket/debug/", DEFAULT),
        ({**S3, **LOCAL}, "here", "here"),
    ],
)
def test_out_dir_of_a_json_config(
    monkeypatch: pytest.MonkeyPatch, data: dict[str, Any], elsewhere: str, in_a_job: str
) -> None:
    monkeypatch.delenv("TRAINING_JOB_NAME", raising=False)
    assert parse_json_config(data).options.out_dir == elsewhere
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    assert parse_json_config(data).options.out_dir == in_a_job


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"S3OutputPath": 5}, ["the dict", "S3OutputPath", "string", "5"]),
        ({"S3OutputpPath": "s3://x/y"}, ["S3OutputpPath", "Did you mean 'S3OutputPath'"]),
        ({"DebugHookConfig": [1]}, ["DebugHookConfig must be a dict", "[1]"]),
        ({"DebugHookConfig": {"HookParameters": {"save_interval": "often"}}}, ["'often'"]),
        ({"HookParameters": {"save_interval": ""}}, ["save_interval", "''"]),
    ],
)
def test_mistakes_are_reported(data: dict[str, Any], expected: list[str]) -> None:
    with pytest.raises(SMDebugValueError) as caught:
        read_json_config(data)
    assert all(word in str(caught.value) for word in expected), caught.value


def test_outside_sagemaker_a_request_saves_to_s3(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINING_JOB_NAME", raising=False)
    place = f"s3://{bucket}/request/"
    request = {"S3OutputPath": place, "HookParameters": {"save_interval": "2"}}
    with NumpyHook.create_from_json_file({"DebugHookConfig": request}) as hook:
        for number in range(5):
            hook.run(loss=float(number))
    trial = create_trial(place)
    assert {step: float(v) for step, v in trial.tensor("loss").values().items()} == {
        0: 0.0, 2: 2.0, 4: 4.0,
    }  # fmt: skip
    assert trial.loaded_all_steps


@pytest.mark.usefixtures("job")
def test_in_a_sagemaker_job_nothing_is_written_to_s3(tmp_path: Path) -> None:
    hook = NumpyHook.create_from_json_file({**S3, "LocalPath": str(tmp_path / "run")})
    assert hook.out_dir == str(tmp_path / "run")


def test_hook_subclass_with_its_own_defaults(tmp_path: Path) -> None:
    content: dict[str, Any] = {"LocalPath": str(tmp_path / "run"), "HookParameters": None}
    path = tmp_path / "job.json"
    path.write_text(json.dumps(content))
    for source in (path, content, {"DebugHookConfig": content}):
        hook = create_hook_from_json_config(NumpyHook, source, {"save_interval": 10})
        assert isinstance(hook, NumpyHook)
        assert hook.save_config == SaveConfig(save_interval=10)
    content["HookParameters"] = {"save_interval": "3", "save_steps": None}
    hook = create_hook_from_json_config(
        NumpyHook, content, {"save_interval": 10, "save_steps": "1"}
    )
    assert hook.save_config == SaveConfig(save_interval=3, save_steps=[1])
    assert create_hook_from_json_config(NumpyHook, content).save_config == SaveConfig(
        save_interval=3
    )


def test_collections_take_the_given_save_config() -> None:
    """As smdebug 1.0.34 does it: three arguments, and every collection has a schedule."""
    manager = CollectionManager()
    add_collections_to_manager(manager, REQUEST, collect_hook_config_params(REQUEST))
    schedules = {name: each.save_config for name, each in manager.get_collections().items()}
    assert schedules["custom"] == read_json_config(REQUEST).options.save_config
    ten = schedules["gradients"]
    assert ten is not None
    assert ten.get_save_config(ModeKeys.TRAIN) == SaveConfigMode(10, save_steps=[1, 2])
    open_ones = CollectionManager()
    add_collections_to_manager(open_ones, REQUEST)
    assert open_ones.get("custom").save_config is None
