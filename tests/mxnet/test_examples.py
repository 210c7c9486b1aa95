"""Every example for MXNet, and every block of its page, runs unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.pages import examples, printed, program, without_numbers

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = examples("mxnet")
# What each of them says.
SAYS = {
    "older_script": (
        r"(?s)17 tensors, 7 steps, finished.*TRAIN: steps \[0, 10, 20, 30, 40, 50\]\n"
        r"  EVAL: steps \[0\]\n"
        r".*net_dense1_relu_output_0 mean 0\.\d+ at 0, 0\.\d+ at 20, 0\.\d+ at 40"
    ),
    "quickstart": (
        r"(?s)30 of 300 steps saved.*5 tensors, 30 steps, finished.*step 250  loss 0\.0[01]\d+"
        r".*gradient/net_dense1_weight +L2 norm \d+\.\d+ at step 0"
    ),
    "rules_stop": (
        r"(?s)^training has stopped after step \d+ of 10000: Rule VanishingGradient.*"
        r"VanishingGradient  found .*DeadRelu +passed.*gradient/layer15_weight +1\.\de-01  #{40}"
    ),
    "two_devices": (
        r"(?s)14 tensors, 4 steps, finished.*step 30: losses 0\.0\d+ and 0\.0\d+, gradient \d\."
    ),
}  # fmt: skip
# MXNet 1.9 uses names that numpy 1.23 is about to drop.
MXNET_ITSELF = ["-W", "ignore::DeprecationWarning"]
# `hybridize` says that blocks have hooks.
HYBRIDIZE = ["-W", "ignore:.*is being hybridized while still having:UserWarning"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", *MXNET_ITSELF, *HYBRIDIZE, *arguments],
        cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "saving has stopped" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    done = run([str(path), str(tmp_path / "run")], tmp_path)
    assert re.search(SAYS[path.stem], done.stdout), done.stdout


def test_page(tmp_path: Path) -> None:
    done = run(["-c", program("docs/mxnet.md", "mxnet")], tmp_path)
    written = {path.name for path in (tmp_path / "runs").iterdir()}
    assert written == {"first", "chosen", "modes", "hybrid", "rules", "cost"}
    assert "1 of 21 steps saved" in done.stdout
    assert "CollectionStats(tensors=4, bytes=1416)" in done.stdout
    assert "is hybridized" in done.stderr


def test_quick_start(tmp_path: Path) -> None:
    done = run(["-c", program("docs/quickstart/mxnet.md", "mxnet")], tmp_path)
    assert without_numbers(done.stdout) == without_numbers(printed("docs/quickstart/mxnet.md"))
