"""The code of docs/tensorflow.md runs, block after block, as a reader would type it."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.pages import printed, program, without_numbers

import smdebug.tensorflow as smd
from smdebug.exceptions import SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = Path(__file__).parent.parent.parent / "docs" / "tensorflow.md"
TEXT = PAGE.read_text(encoding="utf-8")
CODE = program("docs/tensorflow.md", "tensorflow")
# Keras 2 names its models so.
KERAS_ITSELF = "ignore:non-integer arguments to randrange:DeprecationWarning"
TRAIN, EVAL, PREDICT = smd.modes.TRAIN, smd.modes.EVAL, smd.modes.PREDICT


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table of a section, row by row."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


def words(cells: Iterable[str]) -> set[str]:
    """What is between backticks."""
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def run(code: str, place: Path) -> str:
    """Runs code in a directory; returns what it prints."""
    # The file is there for AutoGraph, which reads the source of what it rewrites.
    (place / "page.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", KERAS_ITSELF, "page.py"],
        cwd=place, env={**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for complaint in ("saving has stopped", "not saved", "cannot be", "not complete"):
        assert complaint not in done.stderr, done.stderr
    return done.stdout


def test_quick_start(tmp_path: Path) -> None:
    said = run(program("docs/quickstart/keras.md", "tensorflow"), tmp_path)
    assert without_numbers(said) == without_numbers(printed("docs/quickstart/keras.md"))


def test_page(tmp_path: Path) -> None:
    said = run(CODE, tmp_path)
    assert re.search(r"^\d+ rules, up to step \d+\nVanishingGradient  found", said, re.M)
    assert "CollectionStats(tensors=4, bytes=1416)" in said
    assert re.search("^2 of 20 steps saved, ", said, re.M)
    trials = {path.name: smd.create_trial(str(path)) for path in (tmp_path / "runs").iterdir()}
    # What the comments of the page say that they see.
    first = trials["first"]
    assert first.tensor("loss").steps(mode=TRAIN) == [0, 10, 19, 20, 30, 39]
    assert first.tensor("gradients/hidden/kernelGrad").value(20).shape == (8, 32)
    assert first.tensor("hidden/weights/hidden/kernel:0").value(20).shape == (8, 32)
    trial = trials["modes"]
    assert trial.tensor("gradients/hidden/kernelGrad").steps(mode=TRAIN) == [0, 15]
    assert trial.tensor("predictions").steps(mode=TRAIN) == [0, 10]
    assert trial.steps(mode=EVAL) == list(range(22))
    assert trial.steps(mode=PREDICT) == [0, 5, 10, 15]
    trial = trials["chosen"]
    assert trial.tensor_names(collection="layers") == ["scores/inputs", "scores/outputs"]
    assert trial.tensor_names(collection="first") == ["hidden/inputs", "hidden/outputs"]
    assert trial.tensor_names(collection="mine") == [
        "gradients/hidden/biasGrad", "gradients/hidden/kernelGrad", "hidden/weights/hidden/kernel:0"
    ]  # fmt: skip
    assert trial.tensor_names(collection="default") == ["predictions"]
    trial = trials["own_step"]
    assert trial.tensor_names(collection="losses") == ["distance_loss"]
    assert trial.tensor("gradients/body/kernelGrad").value(0).shape == (8, 16)
    for name in ("tape", "function"):
        trial = trials[name]
        assert trial.tensor("loss").steps(mode=TRAIN) == [0, 10, 20]
        assert trial.tensor("hidden/outputs").steps() == [0, 10, 20]
        assert trial.tensor("weights/hidden/kernel:0").value(20).shape == (8, 32)
    assert trials["tape"].tensor_names(collection="optimizer_variables")
    assert trials["function"].tensor("predictions").value(20).shape == (32, 2)
    assert trials["own"].tensor("scalar/rate").steps() == list(range(20))
    assert trials["own"].tensor("norms").steps() == [0, 10]
    assert trials["nan"].tensor("gradients/hidden/kernelGrad").steps() == [0, 9]
    assert np.isfinite(trials["nan"].tensor("loss").value(9))
    assert trials["nan"].tensor("hidden/inputs").reduction_value(9, "nans") == 1
    trial = trials["session"]
    assert trial.tensor_names(collection="losses") == ["mean_squared_error/value:0"]
    assert trial.tensor("scores:0").value(20).shape == (640, 1)
    assert trial.tensor("weight:0").steps() == [0, 10, 20]
    assert len(trial.tensor_names(collection="gradients")) == 1
    assert "dry" not in trials


def test_the_oldest_scripts() -> None:
    old = importlib.import_module("tornasole.tensorflow")
    assert old.TornasoleHook is old.TornasoleEstimatorHook is smd.SessionHook
    assert all(getattr(old, name) is getattr(smd, name) for name in smd.__all__)
    assert set(old.__all__) == {*smd.__all__, "TornasoleHook", "TornasoleEstimatorHook"}
    keras = importlib.import_module("tornasole.tensorflow.keras")
    assert keras.TornasoleKerasHook is keras.KerasHook is smd.KerasHook
    session = importlib.import_module("tornasole.tensorflow.session")
    assert session.SessionHook is session.EstimatorHook is smd.SessionHook


def test_options_documented_as_unsupported_are_rejected(tmp_path: Path) -> None:
    for kind in (smd.KerasHook, smd.SessionHook):
        with pytest.raises(SMDebugValueError, match="before_update"):
            kind(tmp_path / "run", rules=["NonFinite"], before_update=True)


def test_every_collection_has_a_row() -> None:
    rows = rows_of("What is saved")
    assert words(cells[0] for cells in rows) == set(smd.KerasHook.adapter_class.default_collections)
    always = words(cells[0] for cells in rows if cells[3].startswith("always"))
    assert always == {*smd.KerasHook.adapter_class.always_saved, "scalars"}


def test_every_link_has_its_file() -> None:
    links = re.findall(r"\]\(([^)#:]+)[^)]*\)", TEXT)
    assert len(links) > 5
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
