"""docs/unmodified.md: its script, its commands and its callbacks, as a reader would type them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pages import blocks

PAGE = (Path(__file__).parent.parent.parent / "docs" / "unmodified.md").read_text(encoding="utf-8")
BLOCKS = blocks("docs/unmodified.md", "pytorch")
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]
# One thread each; what is printed comes from both processes of torchrun.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def run(command: list[str], directory: Path) -> str:
    ended = subprocess.run(
        command, cwd=directory, env=ENVIRONMENT,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


@pytest.mark.parametrize("line", COMMANDS)
def test_command(line: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BLOCKS[0], encoding="utf-8")
    (tmp_path / "hook.json").write_text(json.dumps({"LocalPath": "described"}), encoding="utf-8")
    words = shlex.split(line)
    starts = {
        "smdebug": ["-m", "smdebug"],
        "python": [],
        "torchrun": ["-m", "torch.distributed.run", "--standalone"],
    }
    said = run([sys.executable, *starts[words[0]], *words[1:]], tmp_path)
    assert re.search(r"smdebug: [1-9]\d* steps saved in ", said)


def test_callbacks(tmp_path: Path) -> None:
    program = f"import torch\nfrom torch.nn import functional\n{BLOCKS[1]}{BLOCKS[2]}"
    run([sys.executable, "-c", program], tmp_path)
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"lightning", "huggingface"}
