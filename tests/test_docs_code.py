"""Code of pages that needs no framework, run as a reader would type it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.pages import program

from smdebug import create_trial, modes
from smdebug.rules import run_rules
from smdebug.storage.batch import StepBatch
from smdebug.testing.runs import default_batch, make_run

if TYPE_CHECKING:
    from pathlib import Path


def trained(worker: str, step: int) -> StepBatch:
    batch = default_batch(worker, step)
    return StepBatch(step, modes.TRAIN, step, batch.entries)


def test_trials(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "first", steps=range(20), data=trained)
    run_rules(str(tmp_path / "runs" / "first"), ["TensorVariance:tensor_regex=.,max_threshold=1"])
    assert create_trial(tmp_path / "runs" / "first").findings()
    command = [sys.executable, "-W", "error", "-c", program("docs/trials.md", "core")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "TensorVariance fc.weight" in done.stdout
