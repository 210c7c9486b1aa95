"""The code of docs/adapters.md runs and prints what the page shows."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.pages import printed, program

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/adapters.md"


def test_code_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program("docs/adapters.md", "core")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed(PAGE)
