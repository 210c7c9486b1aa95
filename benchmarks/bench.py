"""What a module that measures is given, and the ways to measure."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
# Nothing that is measured takes as long; what does hangs.
PATIENCE = 900.0
FOLDERS = re.compile(r"(?:/[\w.@+-]+)+/(?=[\w.])")


@dataclass(frozen=True)
class Bench:
    """The circumstances of a run.

    Attributes:
        folder: where runs are written.
        peer: a Python that has smdebug 1.0.34; empty where there is none.
        quick: a tenth of everything, to see whether it works. The figures mean nothing.
    """

    folder: Path
    peer: str = ""
    quick: bool = False

    def times(self, number: int) -> int:
        """So many, or a tenth of it."""
        return max(1, number // 10) if self.quick else number


def seconds(work: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def fresh(folder: Path) -> Path:
    """An empty folder of this name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def size_of(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def files_of(folder: Path) -> int:
    """How many files are below a folder."""
    return sum(path.is_file() for path in folder.rglob("*"))


def run_json(python: str, program: str, *arguments: object) -> Any:
    """Runs a program and returns what it printed last, as JSON."""
    command = [python, str(ROOT / program), *map(str, arguments)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment(python), check=False,
            timeout=PATIENCE,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{program} took longer than {PATIENCE:g} s") from error
    if done.returncode:
        raise RuntimeError(f"{program} {' '.join(command[2:])} failed:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def environment(python: str) -> dict[str, str]:
    """The same for every program, whoever measures."""
    same = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "SMDEBUG_LOG_LEVEL": "error"}
    # A library that is not installed but on the path; the peer's is another one of the same name.
    if python == own_python() and "PYTHONPATH" in os.environ:
        same["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return same


def own_python() -> str:
    """The interpreter that has this library."""
    return sys.executable


def last_line(error: BaseException | str) -> str:
    """What an error says at its end, where tracebacks have their point; no folder of a machine."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return FOLDERS.sub("", lines[-1])
