"""The arguments of a hook."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from smdebug.config.collection import Collection
from smdebug.config.options import HookOptions
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.exceptions import SMDebugError, SMDebugTypeError, SMDebugValueError

FIELDS = dataclasses.fields(HookOptions)


def test_defaults() -> None:
    options = HookOptions()
    assert options.out_dir is None
    assert options.save_config == SaveConfig()
    assert options.reduction_config == ReductionConfig(save_raw_tensor=True)
    assert options.include_regex == options.include_collections == ()
    assert options.include_workers == "one"
    assert options.queue_bytes == 512 * 2**20
    assert (options.format, options.worker, options.flush_seconds) == (None, None, None)
    assert options.on_error == "warn"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("out_dir", Path("run"), "run"),
        ("out_dir", "s3://bucket/~x", "s3://bucket/~x"),
        ("out_dir", "~/run", str(Path.home() / "run")),
        ("save_config", SaveConfigMode(save_interval=3), SaveConfig(save_interval=3)),
        ("save_config", {"save_interval": 3}, SaveConfig(save_interval=3)),
        ("include_regex", "relu", ("relu",)),
        ("include_regex", ["a", [SimpleNamespace(name="b")]], ("a", "b")),
        ("include_collections", ["weights", ["bias", ("weights",)]], ("weights", "biases")),
        ("include_collections", [Collection("custom")], ("custom",)),
        ("save_all", 1, True),
        ("dry_run", "true", True),
        ("flush_seconds", 0, 0.0),
        ("queue_bytes", "1000", 1000),
        ("format", "v1", "v1"),
        ("include_workers", "all", "all"),
        ("on_error", "raise", "raise"),
        ("worker", "worker_3", "worker_3"),
    ],
)
def test_accepted(key: str, value: Any, expected: object) -> None:
    assert getattr(HookOptions(**{key: value}), key) == expected


BAD: list[tuple[str, Any, type[SMDebugError], str]] = [
    ("out_dir", "", SMDebugValueError, "non-empty string"),
    ("out_dir", 5, SMDebugValueError, "non-empty string"),
    ("out_dir", "~nobody_of_this_name/x", SMDebugValueError, "a directory or a URL"),
    ("tensorboard_dir", "  ", SMDebugValueError, "non-empty string"),
    ("export_tensorboard", "maybe", SMDebugValueError, "true or false"),
    ("dry_run", None, SMDebugValueError, "true or false"),
    ("save_all", 2, SMDebugValueError, "true or false"),
    ("reduction_config", {"reductions": "min"}, SMDebugTypeError, "ReductionConfig"),
    ("save_config", 5, SMDebugTypeError, "SaveConfig"),
    ("include_regex", 5, SMDebugTypeError, "a string"),
    ("include_regex", "(", SMDebugValueError, "valid regular expression"),
    ("include_collections", 5, SMDebugTypeError, "a string"),
    ("include_collections", "", SMDebugValueError, "non-empty string"),
    ("include_workers", "two", SMDebugValueError, "one of one, all"),
    ("include_workers", None, SMDebugValueError, "one of one, all"),
    ("worker", "", SMDebugValueError, "non-empty string"),
    ("worker", 0, SMDebugValueError, "non-empty string"),
    ("format", "v3", SMDebugValueError, "one of v1, v2"),
    ("format", 2, SMDebugValueError, "one of v1, v2"),
    ("queue_bytes", 0, SMDebugValueError, "a positive integer"),
    ("queue_bytes", "1 GB", SMDebugValueError, "a positive integer"),
    ("flush_seconds", -1, SMDebugValueError, "a number of seconds"),
    ("flush_seconds", math.nan, SMDebugValueError, "a number of seconds"),
    ("flush_seconds", True, SMDebugValueError, "a number of seconds"),
    ("flush_seconds", "soon", SMDebugValueError, "a number of seconds"),
    ("on_error", "ignore", SMDebugValueError, "one of warn, raise"),
]


@pytest.mark.parametrize(("key", "value", "error", "expected"), BAD)
def test_bad(key: str, value: Any, error: type[SMDebugError], expected: str) -> None:
    with pytest.raises(error) as caught:
        HookOptions(**{key: value})
    assert all(part in str(caught.value) for part in (key, expected, repr(value)))


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((), {"save_al": True}, "Unknown argument 'save_al'. Did you mean 'save_all'?"),
        ((), {"Include_Collection": []}, "Did you mean 'include_collections'?"),
        ((), {"nonsense": 1}, "Unknown argument 'nonsense'."),
        (("run",), {"out_dir": "run"}, "multiple values for argument 'out_dir'"),
        ((None,) * 99, {}, "too many positional arguments"),
    ],
)
def test_invalid_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], expected: str) -> None:
    with pytest.raises(SMDebugTypeError) as caught:
        HookOptions(*args, **kwargs)
    assert expected in str(caught.value)
    assert isinstance(caught.value, TypeError)


def test_positional_arguments() -> None:
    ten = ("run", True, "tb", True, None, SaveConfig(save_interval=2), "a", "mine", True, "all")
    options = HookOptions(*ten)
    assert (options.out_dir, options.tensorboard_dir, options.include_workers) == (
        "run", "tb", "all",
    )  # fmt: skip
    assert options.scheduled
    assert options == HookOptions(**{each.name: getattr(options, each.name) for each in FIELDS})


def test_secrets_are_not_shown() -> None:
    options = HookOptions(rules=["NonFinite"], actions=[{"password": "hunter2"}])
    assert "hunter2" not in repr(options)
    assert "NonFinite" not in repr(options)


def test_options_are_frozen_and_replaceable() -> None:
    options = HookOptions("run", include_regex="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.save_all = True  # type: ignore[misc]
    assert dataclasses.replace(options, save_all=True).include_regex == ("a",)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"export_tensorboard": True}, "s3://b/run/tensorboard"),
        ({"tensorboard_dir": "tb"}, "tb"),
        ({"tensorboard_dir": "tb", "export_tensorboard": True}, "tb"),
    ],
)
def test_tensorboard_path(fields: dict[str, Any], expected: str | None) -> None:
    assert HookOptions("s3://b/run/", **fields).tensorboard_path == expected


def test_tensorboard_path_in_a_sagemaker_job(monkeypatch: pytest.MonkeyPatch) -> None:
    assert HookOptions(export_tensorboard=True).tensorboard_path is None
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    assert HookOptions().tensorboard_path is None
    default = HookOptions(export_tensorboard=True)
    assert default.tensorboard_path == "/opt/ml/output/tensors/tensorboard"
    assert default.run_dir == "/opt/ml/output/tensors"
    assert default.with_tensorboard("/tb").tensorboard_path == "/tb"
    assert HookOptions("run", export_tensorboard=True).tensorboard_path == "run/tensorboard"


def test_the_order_of_the_arguments_is_that_of_smdebug_1() -> None:
    names = [field.name for field in dataclasses.fields(HookOptions)]
    assert names[:10] == [
        *("out_dir", "export_tensorboard", "tensorboard_dir", "dry_run", "reduction_config"),
        *("save_config", "include_regex", "include_collections", "save_all", "include_workers"),
    ]


def test_framework_may_have_its_own_default_interval() -> None:
    options = HookOptions("/tmp/run", save_all=True).saving_every(10)
    assert options.save_config == SaveConfig(save_interval=10)
    assert (options.save_all, options.scheduled) == (True, False)
    given = HookOptions("/tmp/run", save_config=SaveConfig(save_interval=3))
    assert given.saving_every(10).save_config == SaveConfig(save_interval=3)
