"""The program that makes the pictures of docs/rules.md trains, and draws what the rule found."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from tools.rule_pictures.__main__ import HEIGHT, WIDTH, overview, picture, run_of
from tools.rule_pictures.drawings import DRAWINGS

from smdebug.rules import rule_names

if TYPE_CHECKING:
    from pathlib import Path


def test_every_rule_has_a_drawing() -> None:
    assert sorted(DRAWINGS) == sorted(rule_names())


@pytest.mark.parametrize("rule", ["DeadRelu", "LossSpike", "SimilarAcrossRuns"])
def test_pictures(rule: str, tmp_path: Path) -> None:
    image = Image.open(io.BytesIO(picture(rule, run_of(rule, tmp_path))))
    assert image.size == (WIDTH, HEIGHT)
    assert len(image.getcolors() or ()) > 10


def test_run_without_findings_has_no_figure(tmp_path: Path) -> None:
    trial = run_of("LossSpike", tmp_path)
    with pytest.raises(SystemExit, match="DeadRelu must find something"):
        picture("DeadRelu", trial)


def test_overview(tmp_path: Path) -> None:
    assert Image.open(io.BytesIO(overview(tmp_path))).size == (1050, 640)
