"""Every example is run by some test; here are those that need no framework, and the README's."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.pages import ROOT, blocks, examples

if TYPE_CHECKING:
    from pathlib import Path

# Those of a framework are in its folder, and run where the framework is installed.
EXAMPLES = examples("")


def run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    assert run(tmp_path, str(path), str(tmp_path / "run"))


def test_readme(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = blocks("README.md", "core")
    printed = run(tmp_path, "-c", block)
    assert "2 tensors, 100 steps, finished" in printed
    # The query the README shows for the command line of duckdb, over the same files.
    (query,) = re.findall(r'duckdb -c "(.*?)"', text)
    program = f"import duckdb; print(len(duckdb.sql({query!r}).fetchall()))"
    assert run(tmp_path, "-c", program).strip() == "100"


def test_every_example_is_run() -> None:
    asked = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "examples":
                asked |= {each.value for each in call.args if isinstance(each, ast.Constant)}
    run_by_tests = {path for folder in asked for path in examples(str(folder))}
    assert run_by_tests == set((ROOT / "examples").rglob("*.py"))


def test_every_example_says_what_it_does_and_how_it_is_started() -> None:
    for path in sorted((ROOT / "examples").rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        said = ast.get_docstring(ast.parse(code)) or ""
        assert f" {path.relative_to(ROOT).as_posix()}" in said.splitlines()[-1], path
