"""`smdebug demo` where it cannot run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.command import smdebug

if TYPE_CHECKING:
    from pathlib import Path


def test_without_torch(tmp_path: Path) -> None:
    refused = smdebug(tmp_path, "demo", code=2)
    assert "the demo needs torch and matplotlib" in refused.stderr
    assert "pip install torch" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_too_few_steps(tmp_path: Path) -> None:
    assert "--steps" in smdebug(tmp_path, "demo", "--steps", "5", code=2).stderr
