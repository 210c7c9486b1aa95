"""The code of docs/pytorch.md runs, block after block, as a reader would type it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "pytorch.md"
# torch.compile uses what torch warns about.
TORCH_ITSELF = "ignore:`torch.jit:DeprecationWarning"


def blocks() -> str:
    """The code of the page, on the lines it has there, so that a traceback names them."""
    text = PAGE.read_text(encoding="utf-8")
    kept = [""] * (text.count("\n") + 1)
    for found in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        first = text.count("\n", 0, found.start(1))
        lines = found[1].splitlines()
        kept[first : first + len(lines)] = lines
    return "\n".join(kept)


def test_page(tmp_path: Path) -> None:
    program = f"exec(compile({blocks()!r}, {str(PAGE)!r}, 'exec'))\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", TORCH_ITSELF, "-c", program],
        cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "saving has stopped" not in done.stderr
    written = {path.name for path in (tmp_path / "runs").iterdir()}
    assert {"first", "chosen", "modes", "own", "nan", "cost", "part", "rules"} <= written
    assert "dry" not in written
