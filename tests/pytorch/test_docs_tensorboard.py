"""docs/tensorboard.md: its programs and its commands, as a reader would type them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.board import read_boards
from tests.pages import blocks

PAGE = Path(__file__).parent.parent.parent / "docs" / "tensorboard.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = blocks("docs/tensorboard.md", "pytorch")
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


def run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        command, cwd=directory, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended


def test_page(tmp_path: Path) -> None:
    done = run([sys.executable, "-W", "error", "-c", "".join(BLOCKS)], tmp_path)
    assert "saving has stopped" not in done.stderr
    live = read_boards(tmp_path / "runs" / "first" / "tensorboard")
    assert set(live) == {"TRAIN", "EVAL"}
    shown = {"CrossEntropyLoss_output_0", "scalar/accuracy", "weights/Sequential_0.weight",
             "gradients/gradient/Sequential_0.weight"}  # fmt: skip
    assert shown <= set(live["TRAIN"])
    # What is made afterwards is what was made meanwhile.
    assert read_boards(tmp_path / "board" / "again") == live
    small = read_boards(tmp_path / "board" / "small")["GLOBAL"]
    tag = "gradients/gradient/Sequential_0.weight"
    assert {tag, f"{tag}/l2", f"{tag}/mean", f"{tag}/std"} <= set(small)
    for line in COMMANDS:
        words = shlex.split(line)
        assert words[0] == "smdebug"
        said = run([sys.executable, "-m", *words], tmp_path).stderr
        assert re.fullmatch(r"smdebug: \d+ scalars and \d+ histograms of 120 steps .*\n", said)
    assert read_boards(tmp_path / "board" / "first") == live
