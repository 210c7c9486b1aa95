"""The code of docs/xgboost.md runs, block after block, as a reader would type it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.pages import printed, program, without_numbers

import smdebug.xgboost as smd
from smdebug.xgboost import naming

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = Path(__file__).parent.parent.parent / "docs" / "xgboost.md"
TEXT = PAGE.read_text(encoding="utf-8")
CODE = program("docs/xgboost.md", "xgboost")


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the tables of a section, row by row."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [line.split(" | ") for line in section.splitlines() if line.startswith("|")]


def words(cells: Iterable[str]) -> set[str]:
    """What is between backticks."""
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def run(code: str, place: Path) -> str:
    """Runs code in a directory; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=place, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "saving has stopped" not in done.stderr
    assert "cannot be saved" not in done.stderr
    return done.stdout


def test_quick_start(tmp_path: Path) -> None:
    said = run(program("docs/quickstart/xgboost.md", "xgboost"), tmp_path)
    assert without_numbers(said) == without_numbers(printed("docs/quickstart/xgboost.md"))


def test_page(tmp_path: Path) -> None:
    run(CODE, tmp_path)
    trials = {path.name: smd.create_trial(str(path)) for path in (tmp_path / "runs").iterdir()}
    # What the comments of the page say that they see.
    assert trials["first"].steps() == [0, 10, 20]
    assert trials["estimator"].tensor_names() == ["validation_0-logloss"]
    assert trials["folds"].tensor_names(regex="^test-auc") == ["test-auc", "test-auc-std"]
    losses = ["train-logloss", "validation-logloss"]
    assert trials["profit"].tensor_names(collection="losses") == losses
    everything = trials["everything"]
    assert everything.tensor("hyperparameters/objective").value(0) == ["binary:logistic"]
    assert everything.tensor("predictions").value(20).shape == (500,)
    assert everything.tensor("trees/Tree").steps() == list(range(21))
    assert trials["shap"].tensor("full_shap").value(20).shape == (200, 6)
    assert trials["rarely"].tensor("average_shap/f0").steps() == [0, 20]
    assert trials["begun"].steps() == [0, 10, 20]
    assert trials["continued"].steps() == [30, 40]
    assert trials["own"].tensor("scalar/leaves").steps() == list(range(21))
    assert trials["reduced"].tensor("predictions").steps() == [0, 10, 20]
    assert (tmp_path / "runs" / "rules" / "reports" / "xgboost_report.html").exists()


def test_every_collection_has_a_row() -> None:
    rows = rows_of("What is saved")
    assert words(cells[0] for cells in rows) == set(smd.Hook.adapter_class.default_collections)


def test_every_column_of_trees_has_a_row() -> None:
    assert words(cells[0] for cells in rows_of("Trees")) == set(naming.TREE_COLUMNS)


def test_every_metric_where_higher_is_better_is_documented_and_not_a_loss() -> None:
    grow = words(cells[1] for cells in rows_of("Which metrics are losses") if len(cells) > 1)
    assert grow == {name.removeprefix(".*") for name in naming._INCREASING.split("|")}
    (losses,) = naming.DEFAULT_COLLECTIONS["losses"]
    for name in grow:
        assert not re.search(losses, f"train-{name}")
        assert not re.search(losses, f"train-{name}@3")
        # The name of another metric, although it begins like this one.
        assert re.search(losses, f"train-{name}x")
