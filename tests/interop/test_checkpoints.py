"""Jobs of smdebug 1.0.34 go on at checkpoints of ours, and ours at those of smdebug 1.0.34."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.hook.numpy_hook import NumpyHook

from smdebug.mode_keys import ModeKeys
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL
# As the program of the other library: every third step is of an evaluation.
MODES = [TRAIN, TRAIN, EVAL]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that names a checkpoint directory, for both libraries."""
    path = tmp_path / "checkpoint_config.json"
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    path.write_text(json.dumps({"LocalPath": str(directory)}), encoding="utf-8")
    monkeypatch.setenv("CHECKPOINT_CONFIG_FILE_PATH", str(path))
    return path


def entries_of(config: Path) -> Any:
    return json.loads((config.parent / "checkpoints/metadata.json").read_text(encoding="utf-8"))


def train(out_dir: Path, steps: int, checkpoints: list[int]) -> NumpyHook:
    """The same training with a hook of ours; returns the hook, closed."""
    hook = NumpyHook(out_dir, save_config={"save_interval": 2}, format="v1")
    for step in range(steps):
        hook.set_mode(MODES[step % 3])
        hook.run(loss=np.float32(hook.step))
        if step in checkpoints:
            path = out_dir.parent / "checkpoints" / f"{hook.step}.pt"
            path.write_text("x" * (hook.step + 1), encoding="utf-8")
            watched = hook._pipeline.run.resume._checkpoints
            assert watched is not None
            # As if the step had taken as long as those of the other library do.
            watched._next_check = watched._next_scan = watched._next_record = 0.0
    hook.close()
    return hook


def test_both_keep_the_same(tmp_path: Path, config: Path, run_peer: Callable[..., None]) -> None:
    run_peer("train_with_checkpoints.py", tmp_path / "theirs", config, tmp_path / "r", 9, "3,4,7")
    theirs = entries_of(config)
    for path in (tmp_path / "checkpoints").iterdir():
        path.unlink()
    train(tmp_path / "ours", 9, [3, 4, 7])
    ours = entries_of(config)
    assert [entry["latest-global-step-seen"] for entry in ours] == [3, 4, 7]
    # With several files, smdebug 1.0.34 now and then takes a step for changed that is not.
    assert [entry for entry in theirs if entry in ours] == ours


def test_ours_goes_on_at_theirs(
    tmp_path: Path, config: Path, run_peer: Callable[..., None]
) -> None:
    run_peer("train_with_checkpoints.py", tmp_path / "first", config, tmp_path / "r", 9, "3,7")
    last = entries_of(config)[-1]
    hook = NumpyHook(tmp_path / "second", save_config={"save_interval": 2})
    assert hook.step == last["latest-global-step-seen"] == 7
    assert hook.last_saved_step == last["latest-global-step-saved"]
    counts = {mode.name: step for mode, step in hook.mode_steps.items()}
    assert counts == last["latest-mode-step"] == {"GLOBAL": 7, "TRAIN": 5, "EVAL": 1}
    hook.close()
    train(tmp_path / "third", 6, [3])
    assert entries_of(config)[-1]["training-run"] == 1
    assert create_trial(str(tmp_path / "third")).mode_modestep(8) == (TRAIN, 6)


def test_theirs_goes_on_at_ours(
    tmp_path: Path, config: Path, run_peer: Callable[..., None]
) -> None:
    train(tmp_path / "first", 9, [3, 7])
    ours = entries_of(config)
    report = tmp_path / "report.json"
    run_peer("train_with_checkpoints.py", tmp_path / "second", config, report, 6, "3")
    began = json.loads(report.read_text(encoding="utf-8"))
    assert began == {
        "step": 7,
        "mode_steps": {"GLOBAL": 7, "TRAIN": 5, "EVAL": 1},
        "last_saved_step": ours[-1]["latest-global-step-saved"],
    }
    entries = entries_of(config)
    assert entries[: len(ours)] == ours
    new = {entry["latest-global-step-seen"]: entry["training-run"] for entry in entries[2:]}
    assert new[11] == 1
    assert create_trial(str(tmp_path / "second")).mode_modestep(8) == (TRAIN, 6)
