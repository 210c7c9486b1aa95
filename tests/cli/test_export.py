"""`smdebug export`: what it writes, what it says, and how it ends."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.board import read_boards

from smdebug.testing import make_run

if TYPE_CHECKING:
    from pathlib import Path


def export(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "smdebug", "export", "tensorboard", *arguments]
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=100, check=False
    )


def test_a_run(tmp_path: Path) -> None:
    make_run(tmp_path / "run", range(6))
    ended = export(tmp_path, "run", "board")
    assert (ended.returncode, ended.stdout) == (0, "")
    # One line, and no bar where there is no terminal.
    assert ended.stderr == "smdebug: 6 scalars and 6 histograms of 6 steps are in board\n"
    assert read_boards(tmp_path / "board")["TRAIN"].keys() == {"loss", "weights/fc.weight"}


def test_a_second_time(tmp_path: Path) -> None:
    make_run(tmp_path / "run", range(2))
    assert export(tmp_path, "run", "board").returncode == 0
    refused = export(tmp_path, "run", "board")
    assert refused.returncode == 2
    assert "which holds TRAIN/0000" in refused.stderr
    assert "(--force)" in refused.stderr
    assert export(tmp_path, "run", "board", "--force").returncode == 0
    assert len(list((tmp_path / "board").rglob("*.tfevents"))) == 1


def test_what_makes_no_sense(tmp_path: Path) -> None:
    make_run(tmp_path / "none", steps=[])
    make_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("not a run", encoding="utf-8")
    for arguments, said in (
        (["nowhere", "board"], "a hook has saved to, got 'nowhere'"),
        (["empty", "board"], "a hook has saved to, got 'empty'"),
        (["file", "board"], "a hook has saved to, got 'file'"),
        (["none", "board"], "must hold saved steps"),
        (["run", "file"], "cannot write TensorBoard files"),
        (["ftp://host/run", "board"], "unknown scheme 'ftp'"),
        (["run"], "LOGDIR"),
    ):
        ended = export(tmp_path, *arguments)
        assert ended.returncode == 2, (arguments, ended.stderr)
        assert said in ended.stderr, (arguments, ended.stderr)
        assert "Traceback" not in ended.stderr
        assert not (tmp_path / "board").exists()


# As an export that takes long would do, but for the time.
TELLING = """
import smdebug.cli.progress as progress
progress._PATIENCE = -1.0
with progress.Bar() as shown:
    for step in range(4):
        shown.tell(step, 4)
"""


def test_a_bar_where_there_is_a_terminal() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-c", TELLING]
    with subprocess.Popen(command, stderr=theirs, env=environment) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                said += os.read(ours, 4096)
            except OSError:
                # The other end is closed.
                break
        assert process.wait(timeout=60) == 0
    os.close(ours)
    assert b"steps" in said
    assert b"75%" in said
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("", "")


def test_help(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "smdebug", "export", "--help"],
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "tensorboard" in shown.stdout
