"""Every example for PyTorch, and that of the README, runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples" / "pytorch").glob("*.py"))
# What each of them says.
SAYS = {
    "ddp": r"\['worker_0', 'worker_1'\]",
    "dict_output": r"TwoHeads_output_score: shape \(128, 1\), saved at \[0, 50, 100, 150, 200\]",
    "first_nan": r"(?s)not finite at step 300.*\n0 +norm_output_0 .*in example 7 of the batch",
    "quickstart": "5 tensors, 30 steps, finished",
    "rules": "(?s)NonFinite fired at step 300: Sequential_input_0.*all weights are finite: True",
    "two_models": "discriminator",
}
# Many small processes with many threads each only wait for each other.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60
    assert re.search(SAYS[path.stem], run(tmp_path, str(path), str(tmp_path / "run")))


def test_readme(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    first, watched = [block for block in blocks if "torch" in block]
    assert "5 tensors, 20 steps, finished" in run(tmp_path, "-c", first)
    assert "Rule VanishingGradient fired at step 0: gradient/Sequential_0" in run(
        tmp_path, "-c", watched
    )
