"""Where a run and its TensorBoard files go: `file://` URLs, and the defaults of a SageMaker job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyHook

from smdebug import SaveConfig
from smdebug.core.json_config import DEFAULT_SAGEMAKER_OUTDIR
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

EVERY = SaveConfig(save_interval=1)
PLACES = pytest.mark.parametrize("place", ["{}", "file://{}"], ids=["path", "URL"])
# The rules of a run in an object store are first evaluated after 10 seconds, those of a local one
# after one.
REMOTE_SECONDS = 10.0


@pytest.fixture
def in_sagemaker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A SageMaker job that configures neither a hook nor TensorBoard."""
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    for name in ("SMDEBUG", "TENSORBOARD", "CHECKPOINT"):
        monkeypatch.setenv(f"{name}_CONFIG_FILE_PATH", str(tmp_path / "missing.json"))


# ---- file:// URLs


@PLACES
def test_rules_are_evaluated_as_soon_as_those_of_a_local_run(tmp_path: Path, place: str) -> None:
    hook = NumpyHook(place.format(tmp_path), save_config=EVERY, rules=["NonFinite"])
    hook.run(loss=np.float32("nan"))
    hook.flush()
    began = time.monotonic()
    while not hook.findings() and time.monotonic() < began + REMOTE_SECONDS - 1:
        hook.run()
    found = hook.findings()
    hook.close()
    assert [finding.rule for finding in found] == ["NonFinite"]


@PLACES
def test_tensorboard_files_grow_as_local_ones_do(tmp_path: Path, place: str) -> None:
    hook = NumpyHook(
        place.format(tmp_path / "run"), save_config=EVERY,
        tensorboard_dir=place.format(tmp_path / "board"),
    )  # fmt: skip
    for number in range(3):
        hook.run(loss=np.float32(number))
        hook.flush()
    hook.close()
    files = [path for path in (tmp_path / "board").rglob("*") if path.is_file()]
    assert len(files) == 1, files
    assert create_trial(tmp_path / "run").steps() == [0, 1, 2]


@PLACES
def test_tensorboard_files_in_the_run_grow_as_local_ones_do(tmp_path: Path, place: str) -> None:
    hook = NumpyHook(place.format(tmp_path), save_config=EVERY, export_tensorboard=True)
    for number in range(3):
        hook.run(loss=np.float32(number))
        hook.flush()
    hook.close()
    files = [path for path in (tmp_path / "tensorboard").rglob("*") if path.is_file()]
    assert len(files) == 1, files


# ---- SageMaker


@pytest.mark.usefixtures("in_sagemaker")
def test_tensorboard_files_are_in_the_run_that_sagemaker_collects() -> None:
    hook = NumpyHook(export_tensorboard=True)
    assert hook.out_dir == DEFAULT_SAGEMAKER_OUTDIR
    assert hook.tensorboard_dir == f"{DEFAULT_SAGEMAKER_OUTDIR}/tensorboard"


@pytest.mark.usefixtures("in_sagemaker")
def test_without_export_there_are_no_tensorboard_files() -> None:
    assert NumpyHook().tensorboard_dir is None


@pytest.mark.usefixtures("in_sagemaker")
def test_directories_set_by_the_user_are_kept(tmp_path: Path) -> None:
    expected: dict[str, Any] = {"out_dir": str(tmp_path / "run"), "export_tensorboard": True}
    assert NumpyHook(**expected).tensorboard_dir == str(tmp_path / "run" / "tensorboard")
    board = str(tmp_path / "board")
    assert NumpyHook(tensorboard_dir=board).tensorboard_dir == board
