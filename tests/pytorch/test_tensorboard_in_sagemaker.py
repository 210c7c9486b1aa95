"""A SageMaker job with a hook without an `out_dir` has TensorBoard files too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import smdebug.pytorch as smd
from smdebug.core.json_config import DEFAULT_SAGEMAKER_OUTDIR

if TYPE_CHECKING:
    import pytest
    from tests.sagemaker_job import Job


def enter(job: Job, monkeypatch: pytest.MonkeyPatch, configured: bool) -> None:
    for name, value in job.variables.items():
        monkeypatch.setenv(name, value)
    if not configured:
        missing = str(job.root / "missing.json")
        monkeypatch.setenv("TENSORBOARD_CONFIG_FILE_PATH", missing)


def test_tensorboard_files_are_in_the_run_by_default(
    sagemaker_job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(sagemaker_job, monkeypatch, configured=False)
    hook = smd.Hook(export_tensorboard=True)
    assert hook.out_dir == DEFAULT_SAGEMAKER_OUTDIR
    assert hook.tensorboard_dir == f"{DEFAULT_SAGEMAKER_OUTDIR}/tensorboard"


def test_directory_of_the_platform_takes_precedence(
    sagemaker_job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(sagemaker_job, monkeypatch, configured=True)
    hook = smd.Hook(export_tensorboard=True)
    assert hook.tensorboard_dir == str(sagemaker_job.tensorboard)
