"""The code of pages for PyTorch runs, block after block, as a reader would type it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import boto3
import pytest
from tests.pages import commands, printed, program, start, without_numbers

if TYPE_CHECKING:
    from pathlib import Path

# torch.compile uses what torch warns about.
TORCH_ITSELF = "ignore:`torch.jit:DeprecationWarning"


def run(code: str, place: Path) -> str:
    """Runs code in a directory; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", TORCH_ITSELF, "-c", code],
        cwd=place, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "saving has stopped" not in done.stderr
    return done.stdout


def written(place: Path) -> set[str]:
    """The names of the runs in a directory."""
    return {path.name for path in place.glob("runs/*")}


def test_page(tmp_path: Path) -> None:
    run(program("docs/pytorch.md", "pytorch"), tmp_path)
    runs = {"first", "chosen", "modes", "own", "nan", "cost", "part", "rules"}
    assert runs <= written(tmp_path)
    assert "dry" not in written(tmp_path)


@pytest.mark.filterwarnings("ignore:.*utcnow.*:DeprecationWarning")  # botocore, not us
def test_page_of_object_stores(tmp_path: Path, bucket: str) -> None:
    boto3.client("s3").create_bucket(Bucket="my-bucket")
    run(program("docs/object_storage.md", "pytorch"), tmp_path)


def test_resume_page(tmp_path: Path) -> None:
    run(program("docs/resume.md", "pytorch"), tmp_path)
    assert written(tmp_path) == {"spot", "rewind", "directory"}


def test_first_page(tmp_path: Path) -> None:
    run(program("docs/index.md", "pytorch"), tmp_path)
    assert written(tmp_path) == {"mine"}


def test_concepts(tmp_path: Path) -> None:
    said = run(program("docs/concepts.md", "pytorch"), tmp_path)
    assert "NonFinite  passed" in said


def test_configuration(tmp_path: Path) -> None:
    run(program("docs/configuration.md", "pytorch"), tmp_path)


def test_rules(tmp_path: Path) -> None:
    run(program("docs/rules.md", "pytorch"), tmp_path)
    assert written(tmp_path) <= {"watched", "safe"}


def test_quick_start(tmp_path: Path) -> None:
    page = "docs/quickstart/pytorch.md"
    said = run(program("docs/quickstart/pytorch.md", "pytorch"), tmp_path)
    assert without_numbers(said) == without_numbers(printed(page))


def test_quick_start_of_a_script_as_it_is(tmp_path: Path) -> None:
    page = "docs/quickstart/unmodified.md"
    (line,) = [each for each in commands(page) if each.startswith("smdebug")]
    assert "smdebug: 4 steps saved in " in start(line, tmp_path)
    said = run(program("docs/quickstart/unmodified.md", "pytorch"), tmp_path)
    assert without_numbers(said) == without_numbers(printed(page))
