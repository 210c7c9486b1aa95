"""One measured figure, and how figures are measured and shown."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Figure:
    """A line of the table.

    Attributes:
        what: what was measured.
        target: what it must reach, as text.
        values: one per repetition; the median counts.
        unit: "x", "s", "MB" or such.
        at_least: whether more is better.
        limit: the number to reach.
        failed: why there are no values.
        digits: how many of a number are shown.
    """

    what: str
    target: str
    values: list[float]
    unit: str
    limit: float | None = None
    at_least: bool = False
    failed: str = ""
    digits: int = 3

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def reached(self) -> str:
        if self.limit is None:
            return ""
        if self.failed:
            return "NO"
        good = self.median >= self.limit if self.at_least else self.median <= self.limit
        return "yes" if good else "NO"


def table(figures: list[Figure]) -> str:
    """The figures as a Markdown table."""
    lines = ["| what | must reach | median | spread | reached |", "|---|---|---|---|---|"]
    for figure in figures:
        median, spread = f"failed: {figure.failed}", ""
        if not figure.failed:
            low, median, high = (
                f"{value:.{figure.digits}g}"
                for value in (min(figure.values), figure.median, max(figure.values))
            )
            median, spread = f"{median} {figure.unit}", f"{low}-{high} ({len(figure.values)})"
        lines.append(
            f"| {figure.what} | {figure.target} | {median} | {spread} | {figure.reached} |"
        )
    return "\n".join(lines)


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


def run_json(python: str, program: str, *arguments: object) -> Any:
    """Runs a program and returns what it printed last, as JSON."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "SMDEBUG_LOG_LEVEL": "error"}
    command = [python, str(ROOT / program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def own_python() -> str:
    """The interpreter that has this library."""
    return sys.executable
