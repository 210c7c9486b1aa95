"""Every example that needs no framework, and that of the README, runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Those of a framework are in its folder, and run where the framework is installed.
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60
    assert run(tmp_path, str(path), str(tmp_path / "run"))


def test_readme(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (block,) = [block for block in blocks if "torch" not in block]
    printed = run(tmp_path, "-c", block)
    assert "2 tensors, 100 steps, finished" in printed
    # The query the README shows for the command line of duckdb, over the same files.
    (query,) = re.findall(r'duckdb -c "(.*?)"', text)
    program = f"import duckdb; print(len(duckdb.sql({query!r}).fetchall()))"
    assert run(tmp_path, "-c", program).strip() == "100"
