"""Every example is run by some test; here are those that need no framework, and the README's."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.pages import ROOT, blocks, commands, examples

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
    (block,) = blocks("README.md", "core")
    printed = run(tmp_path, "-c", block)
    assert "2 tensors, 100 steps, finished" in printed
    # Of the query over the same files.
    assert re.search(r"100 rows", printed)


def test_every_command_of_the_readme_is_known() -> None:
    """Those of `smdebug` are run, by the session of PyTorch; the others set up what runs them."""
    (extras,) = re.findall(r"pip install -e '\.\[(.*)\]'", "\n".join(commands("README.md")))
    # `trial.plot` and `trial.sql` are shown.
    assert {"plot", "sql"} <= set(extras.split(","))
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for line in commands("README.md"):
        program, *words = line.split()
        assert program in ("smdebug", "make") or words[:3] == ["-m", "pip", "install"], line
        assert program != "make" or words[0] in targets, line


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
