"""Run scripts in processes: alone, with `smdebug run`, and with `import smdebug.auto`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

# Prefixes of lines with results; trainers also print durations.
RESULTS = ("loss", "eval_loss", "evaluation", "weights", "model")
_SECONDS = 300


@dataclass
class Ended:
    """A process that has ended."""

    code: int
    lines: list[str]
    errors: str

    def values(self, name: str) -> list[float]:
        """Return the numbers that the script printed after a name."""
        return [float(line.split()[1]) for line in self.lines if line.split()[0] == name]


def run(arguments: list[str], directory: Path, **variables: str) -> Ended:
    """Run Python with arguments in a directory."""
    known = {key: value for key, value in os.environ.items() if not key.startswith("SMDEBUG")}
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=directory, env={**known, **variables},
        capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    lines = [line for line in ended.stdout.splitlines() if line.startswith(RESULTS)]
    return Ended(ended.returncode, lines, ended.stderr)


def run_alone(script: Path, directory: Path, *arguments: str) -> Ended:
    """Run a script without instrumentation."""
    return run([str(script), *arguments], directory)


def run_launched(script: Path, directory: Path, options: list[str], *arguments: str) -> Ended:
    """Run a script with `smdebug run`."""
    launcher = ["-m", "smdebug", "run", *options, "--", str(script), *arguments]
    return run(launcher, directory)


def run_imported(script: Path, directory: Path, config: dict[str, Any]) -> Ended:
    """Run a script with `import smdebug.auto` as its first line, and a JSON config."""
    file = directory / "job.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    changed = directory / script.name
    text = script.read_text(encoding="utf-8")
    changed.write_text(f"import smdebug.auto\n{text}", encoding="utf-8")
    return run([str(changed)], directory, SMDEBUG_CONFIG_FILE_PATH=str(file))


def check_same(one: Ended, other: Ended) -> None:
    """Assert that both have the same results, to the last digit, and the same exit status."""
    assert other.lines == one.lines, other.errors
    assert other.code == one.code
    assert any(line.startswith(("weights", "model")) for line in one.lines), one.errors
