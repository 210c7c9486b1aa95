"""The metrics file of a SageMaker job."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyHook

from smdebug.mode_keys import ModeKeys
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the platform would look, in a job of its own."""
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    monkeypatch.setenv("SAGEMAKER_METRICS_DIRECTORY", str(tmp_path / "metrics"))
    return tmp_path / "metrics"


def hook_in(tmp_path: Path, **options: Any) -> NumpyHook:
    options.setdefault("save_config", {"save_interval": 1})
    return NumpyHook(tmp_path / "run", on_error="raise", **options)


def lines_in(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.iterdir()
    assert file.name == f"{os.getpid()}.json"
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("collection", ["searchable_scalars", "sm_metrics"])
def test_tensors_of_the_collections_that_are_searched(
    tmp_path: Path, folder: Path, collection: str
) -> None:
    hook = hook_in(tmp_path, include_collections=[collection])
    hook.get_collection(collection).include("^searched$")
    hook.run(searched=np.array([2.0]), other=np.array([3.0]))
    hook.close()
    (line,) = lines_in(folder)
    assert (line["MetricName"], line["Value"]) == ("searched_GLOBAL", 2.0)


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_losses_and_scalars(tmp_path: Path, folder: Path, format: str) -> None:
    hook = hook_in(tmp_path, format=format)
    hook.set_mode(ModeKeys.TRAIN)
    for number in range(3):
        hook.run(loss=np.array([number, number + 1.0]), weight=np.ones(3))
        hook.save_scalar("rate", 0.5, sm_metric=True, timestamp=1000.0 + number)
        hook.save_scalar("quiet", 7.0)
    hook.set_mode(ModeKeys.EVAL)
    hook.run(loss=np.array(9, np.int32))
    hook.close()
    lines = lines_in(folder)
    found = [(each["MetricName"], each["Value"], each["IterationNumber"]) for each in lines]
    assert sorted(found) == [
        ("loss_EVAL", 9.0, 0),
        ("loss_TRAIN", 0.5, 0), ("loss_TRAIN", 1.5, 1), ("loss_TRAIN", 2.5, 2),
        ("scalar/rate_TRAIN", 0.5, 0), ("scalar/rate_TRAIN", 0.5, 1), ("scalar/rate_TRAIN", 0.5, 2),
    ]  # fmt: skip
    assert [each["Timestamp"] for each in lines if "rate" in each["MetricName"]] == [
        1000.0, 1001.0, 1002.0,
    ]  # fmt: skip
    keys = {"MetricName", "Value", "Timestamp", "IterationNumber"}
    assert all(set(each) == keys for each in lines)


def test_non_finite_metrics_are_skipped(tmp_path: Path, folder: Path) -> None:
    hook = hook_in(tmp_path)
    for value in (1.0, math.nan, math.inf, 2.0):
        hook.run(loss=np.array(value))
    hook.close()
    assert [each["Value"] for each in lines_in(folder)] == [1.0, 2.0]
    assert create_trial(hook.out_dir).tensor("loss").steps() == [0, 1, 2, 3]


def test_several_hooks_of_a_process_share_the_file(tmp_path: Path, folder: Path) -> None:
    for number in range(2):
        with NumpyHook(tmp_path / f"run{number}", save_config={"save_interval": 1}) as hook:
            hook.run(loss=np.array(float(number)))
    assert [each["Value"] for each in lines_in(folder)] == [0.0, 1.0]


def test_unwritable_directory_does_not_affect_the_run(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("a file, not a directory")
    hook = hook_in(tmp_path)
    for _ in range(3):
        hook.run(loss=np.array(1.0))
    hook.close()
    assert len([each for each in caplog.messages if "SageMaker metrics" in each]) == 1
    assert create_trial(hook.out_dir).tensor("loss").steps() == [0, 1, 2]


@pytest.mark.parametrize("missing", ["TRAINING_JOB_NAME", "SAGEMAKER_METRICS_DIRECTORY"])
def test_no_metrics_file_outside_sagemaker(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.delenv(missing)
    monkeypatch.chdir(tmp_path)
    with hook_in(tmp_path) as hook:
        hook.run(loss=np.array(1.0))
        hook.save_scalar("rate", 0.5, sm_metric=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
