"""Running `smdebug` as a person does, in a process of its own."""

from __future__ import annotations

import atexit
import functools
import os
import pty
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests import command_job
from tests.zygote import Zygote

# Generous: it is only waited this long when something is broken.
LIMIT = 150
_SMDEBUG = [sys.executable, "-W", "error", "-m", "smdebug"]
# Without the marks by which rich takes a pipe for a terminal.
_PLAIN = ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "LINES", "NO_COLOR")


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _PLAIN}
    return {**kept, "PYTHONIOENCODING": "utf-8", **more}


@functools.cache
def _zygote() -> Zygote:
    """Starts commands; the time it takes to import everything is spent once."""
    # Where warnings go, and how texts are written, is settled when Python starts.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONIOENCODING", "utf-8")
        made = Zygote(["tests.command_job"], ["-W", "error"])
    atexit.register(made.close)
    return made


def smdebug(
    directory: Path, *arguments: str, code: int = 0, traceback: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a directory; it has to end with `code`, and without a traceback."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        job = _zygote().start_in(
            environment(**variables), command_job.smdebug_command,
            str(directory), arguments, str(out), str(err),
        )  # fmt: skip
        ended = subprocess.CompletedProcess(
            ["smdebug", *arguments], job.wait(), out.read_text("utf-8"), err.read_text("utf-8")
        )
    assert ended.returncode == code, (arguments, ended.stdout, ended.stderr)
    assert traceback or "Traceback" not in ended.stderr, (arguments, ended.stderr)
    return ended


def started(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """Starts a command that goes on, with interrupts as at a terminal."""
    return subprocess.Popen(
        [*_SMDEBUG, *arguments],
        cwd=directory, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        encoding="utf-8",
        # A shell starts what runs in the background with interrupts switched off.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def on_terminal(directory: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """Runs a command on a terminal of 80 columns; returns how it ended and all that it showed."""
    return watched(directory, [*_SMDEBUG, *arguments], **variables)


def watched(directory: Path, command: list[str], **variables: str) -> tuple[int, str]:
    """Runs any program so."""
    ours, theirs = pty.openpty()
    chosen = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "60", **variables}
    with subprocess.Popen(
        command, cwd=directory, env=environment(**chosen), stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 4096)
            except OSError:
                # The other end is closed.
                break
        code = process.wait(timeout=60)
    os.close(ours)
    return code, shown.decode("utf-8", errors="replace")
