"""Every example for XGBoost runs unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.pages import examples

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = examples("xgboost")
# What each of them says.
SAYS = {
    "cross_validation": r"(?s)rate 0.05: the best of 100 rounds.*round  99  0\.\d{4} \+- 0\.\d{4}",
    "distributed": r"(?s)\['worker_0', 'worker_1'\].*std of predictions\n  worker_0: ",
    "explain": r"(?s)\(60, 3, 13\).*class_0: proline .*\n  proline < \d+.*\n      .*\n {10}-0",
    "quickstart": r"(?s)149 tensors, 21 steps, finished.*\n  worst perimeter +\d+\.\d%  ####",
    "sklearn_estimator": r"(?s)depth 1: \d+ rounds, the best is \d+.*depth 6: \d+ rounds",
    "stop": r"(?s)^\d+ of 20000 rounds.*step 10: one feature has 9\d% .*reminders +9\d\.",
}
# Many small processes with many threads each only wait for each other.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), str(tmp_path / "run")],
        cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(SAYS[path.stem], done.stdout), done.stdout
