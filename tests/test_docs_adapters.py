"""The code of docs/adapters.md runs and prints what the page shows."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.pages import printed, program

if TYPE_CHECKING:
    from pathlib import Path


def test_code_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program("docs/adapters.md", "core")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed("docs/adapters.md")


def test_hook_of_the_page_keeps_the_contract(tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text(program("docs/adapters.md", "core"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
