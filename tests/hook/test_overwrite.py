"""`overwrite=True` replaces a finished run; without it a finished run is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyHook

from smdebug import SaveConfig, modes
from smdebug.exceptions import SMDebugError, SMDebugRuntimeError
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

EVERY = SaveConfig(save_interval=1)
FORMATS = pytest.mark.parametrize("format", ["v1", "v2"])


def finish_run(out_dir: Path, **options: Any) -> None:
    """Leave a run of five steps with tensors that no later run has."""
    hook = NumpyHook(out_dir, save_config=EVERY, save_all=True, **options)
    hook.set_mode(modes.TRAIN)
    for _ in range(5):
        hook.run(loss=np.float32(1), old=np.ones(3))
    hook.save_tensor("by_hand", np.ones(2), "old_collection")
    hook.close()


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("before", ["v1", "v2"])
@FORMATS
def test_a_finished_run_is_replaced(tmp_path: Path, before: str, format: str) -> None:
    finish_run(tmp_path, format=before)
    hook = NumpyHook(tmp_path, save_config=EVERY, overwrite=True, format=format)
    assert (hook.step, hook.last_saved_step) == (-1, None)
    hook.set_mode(modes.EVAL)
    for number in range(2):
        hook.run(loss=np.float32(number + 10))
    hook.close()
    trial = create_trial(tmp_path)
    assert trial.loaded_all_steps
    assert trial.steps() == [0, 1]
    assert trial.modes() == [modes.EVAL]
    assert trial.tensor_names() == ["loss"]
    assert [float(value) for value in trial.tensor("loss").values().values()] == [10, 11]
    assert "old_collection" not in trial.collections()


@FORMATS
def test_a_trial_never_sees_both_runs(tmp_path: Path, format: str) -> None:
    finish_run(tmp_path, format=format)
    hook = NumpyHook(tmp_path, save_config=EVERY, overwrite=True, format=format)
    hook.run(loss=np.float32(7))
    hook.flush()
    trial = create_trial(tmp_path)
    assert not trial.loaded_all_steps
    assert trial.tensor_names() == ["loss"]
    assert trial.steps() == [0]
    hook.close()


def test_other_files_are_kept(tmp_path: Path) -> None:
    finish_run(tmp_path)
    (tmp_path / "checkpoint.pt").write_text("weights")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "read.me").write_text("mine")
    hook = NumpyHook(tmp_path, save_config=EVERY, overwrite=True)
    hook.run(loss=np.float32(1))
    hook.close()
    assert (tmp_path / "checkpoint.pt").read_text() == "weights"
    assert (tmp_path / "notes" / "read.me").read_text() == "mine"


def test_findings_of_the_old_run_are_deleted(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path, save_config=EVERY, rules=["NonFinite"])
    hook.run(loss=np.float32("nan"))
    hook.close()
    assert create_trial(tmp_path).findings()
    hook = NumpyHook(tmp_path, save_config=EVERY, rules=["NonFinite"], overwrite=True)
    hook.run(loss=np.float32(1))
    hook.close()
    assert create_trial(tmp_path).findings() == []


def test_without_a_run_there_is_nothing_to_replace(tmp_path: Path) -> None:
    hook = NumpyHook(tmp_path / "new", save_config=EVERY, overwrite=True)
    hook.run(loss=np.float32(1))
    hook.close()
    assert create_trial(tmp_path / "new").steps() == [0]


@pytest.mark.parametrize("value", [True, "true"])
def test_it_is_a_key_of_the_json_config(tmp_path: Path, value: Any) -> None:
    finish_run(tmp_path)
    parameters = {"overwrite": value, "save_interval": 1}
    config = {"LocalPath": str(tmp_path), "HookParameters": parameters}
    hook = NumpyHook.create_from_json_file(config)
    hook.run(loss=np.float32(1))
    hook.close()
    trial = create_trial(tmp_path)
    assert (trial.tensor_names(), trial.steps()) == (["loss"], [0])


@pytest.mark.parametrize("options", [{}, {"overwrite": False}], ids=["default", "False"])
def test_without_overwrite_the_error_has_three_suggestions(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    finish_run(tmp_path)
    before = files_of(tmp_path)
    with pytest.raises(SMDebugRuntimeError) as refused:
        NumpyHook(tmp_path, save_config=EVERY, **options)
    message = str(refused.value)
    assert str(tmp_path) in message
    for way in ("another out_dir", "overwrite=True", "resume=True"):
        assert way in message, message
    assert files_of(tmp_path) == before


def test_overwrite_and_resume_are_mutually_exclusive(tmp_path: Path) -> None:
    with pytest.raises(SMDebugError, match=r"overwrite.*resume|resume.*overwrite"):
        NumpyHook(tmp_path, overwrite=True, resume=True)
