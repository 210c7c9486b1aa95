"""Every example for PyTorch, and that of the README, runs unchanged."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.pages import blocks, commands, examples, fenced, start, without_numbers

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = examples("pytorch")
# Scripts that know nothing of us.
UNMODIFIED = examples("unmodified")
# What each of them says.
SAYS = {
    "ddp": r"\['worker_0', 'worker_1'\]",
    "dict_output": r"TwoHeads_output_score: shape \(128, 1\), saved at \[0, 50, 100, 150, 200\]",
    "first_nan": r"(?s)not finite at step 300.*\n0 +norm_output_0 .*in example 7 of the batch",
    "quickstart": "5 tensors, 30 steps, finished",
    "rules": "(?s)NonFinite fired at step 300: Sequential_input_0.*all weights are finite: True",
    "two_models": "discriminator",
}
SAYS_UNMODIFIED = {
    "deep": (
        r"(?s)as good as guessing.*VanishingGradient, step 0: .*VanishingGradient found \d+ more.*"
        r"smdebug: 50 steps saved in "
    ),
    "train": r"(?s)step 200: loss 0\.0\d+.*smdebug: 4 steps saved in ",
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
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    assert re.search(SAYS[path.stem], run(tmp_path, str(path), str(tmp_path / "run")))


@pytest.mark.parametrize("path", UNMODIFIED, ids=lambda path: path.stem)
def test_unmodified_example(path: Path, tmp_path: Path) -> None:
    code = path.read_text(encoding="utf-8")
    assert len(code.splitlines()) < 60
    assert "smdebug" not in code.split('"""')[2]
    command = (ast.get_docstring(ast.parse(code)) or "").splitlines()[-1]
    assert re.search(SAYS_UNMODIFIED[path.stem], start(command, tmp_path))


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_commands_of_the_first_pages(page: str, tmp_path: Path) -> None:
    lines = [line for line in commands(page) if line.startswith("smdebug run")]
    assert lines
    for line in lines:
        said = start(line, tmp_path).replace(f"{tmp_path}/", "")
        assert re.search(r"smdebug: [1-9]\d* steps saved in ", said)
        # What the page shows of the output, whatever the numbers are.
        for block in fenced(page, "console"):
            if line in block.code:
                for shown in block.code.splitlines()[1:]:
                    assert without_numbers(shown) in without_numbers(said)


def test_readme(tmp_path: Path) -> None:
    first, watched = blocks("README.md", "pytorch")
    assert "5 tensors, 20 steps, finished" in run(tmp_path, "-c", first)
    printed = run(tmp_path, "-c", watched)
    assert "Rule VanishingGradient fired at step 0: gradient/Sequential_0" in printed
    assert re.search(r"VanishingGradient +found \d+ things", printed)
    said = "".join(
        start(line, tmp_path, code=1 if line.startswith(("smdebug rules", "smdebug diff")) else 0)
        for line in commands("README.md")
        if line.startswith("smdebug ") and not line.startswith("smdebug run")
    )
    for words in (
        "VanishingGradient", "MSELoss_output_0", "4 tensors, l2", "first difference: step 0",
        "no damage", "rows of 20 steps are in first.parquet",
    ):  # fmt: skip
        assert words in said
