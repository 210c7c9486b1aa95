"""The code of pages for PyTorch runs, block after block, as a reader would type it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
# torch.compile uses what torch warns about.
TORCH_ITSELF = "ignore:`torch.jit:DeprecationWarning"


def blocks(page: Path) -> str:
    """The code of the page, on the lines it has there, so that a traceback names them."""
    text = page.read_text(encoding="utf-8")
    kept = [""] * (text.count("\n") + 1)
    for found in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        first = text.count("\n", 0, found.start(1))
        lines = found[1].splitlines()
        kept[first : first + len(lines)] = lines
    return "\n".join(kept)


def run(page: str, place: Path) -> set[str]:
    """Runs the code of a page; returns the names of the runs it wrote."""
    path = DOCS / page
    program = f"exec(compile({blocks(path)!r}, {str(path)!r}, 'exec'))\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", TORCH_ITSELF, "-c", program],
        cwd=place, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "saving has stopped" not in done.stderr
    return {path.name for path in place.glob("runs/*")}


def test_page(tmp_path: Path) -> None:
    written = run("pytorch.md", tmp_path)
    assert {"first", "chosen", "modes", "own", "nan", "cost", "part", "rules"} <= written
    assert "dry" not in written


@pytest.mark.filterwarnings("ignore:.*utcnow.*:DeprecationWarning")  # botocore, not us
def test_page_of_object_stores(tmp_path: Path, bucket: str) -> None:
    boto3.client("s3").create_bucket(Bucket="my-bucket")
    run("object_storage.md", tmp_path)


def test_page_about_interrupted_jobs(tmp_path: Path) -> None:
    assert run("resume.md", tmp_path) == {"spot", "rewind", "directory"}
