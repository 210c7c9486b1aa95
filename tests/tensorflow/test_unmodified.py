"""Zero-code instrumentation: a script trains the same, and its run is complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unmodified import check_same, run_alone, run_imported, run_launched

from smdebug import modes
from smdebug.trials import create_trial

SCRIPT = Path(__file__).parent / "programs" / "unmodified" / "keras_fit.py"


def test_fit_evaluate_predict(tmp_path: Path) -> None:
    alone = run_alone(SCRIPT, tmp_path)
    options = ["--out", "run", "--save", "all", "--every", "1"]
    check_same(alone, run_launched(SCRIPT, tmp_path, options))
    trial = create_trial(str(tmp_path / "run"))
    # Four batches in two epochs, then two of the default size.
    assert trial.steps(mode=modes.TRAIN) == list(range(10))
    # After each of two epochs, and once more.
    assert len(trial.steps(mode=modes.EVAL)) == 3 * 2 + 4
    assert len(trial.steps(mode=modes.PREDICT)) == 2
    printed = alone.values("loss")
    # The loss of an epoch is that of its last batch: Keras keeps a mean.
    losses = trial.tensor("loss")
    at_ends = [losses.value(step, mode=modes.TRAIN).item() for step in (3, 7, 9)]
    assert at_ends == pytest.approx([printed[0], printed[1], printed[4]], rel=1e-6)
    assert trial.tensor_names(collection="gradients")


def test_one_import(tmp_path: Path) -> None:
    job = {"LocalPath": str(tmp_path / "run"), "HookParameters": {"save_interval": "2"}}
    check_same(run_alone(SCRIPT, tmp_path), run_imported(SCRIPT, tmp_path, job))
    trial = create_trial(str(tmp_path / "run"))
    assert set(trial.modes()) == {modes.TRAIN, modes.EVAL, modes.PREDICT}


def test_the_instrumented_package_keeps_its_loader(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import importlib.resources\n"
        "import keras\n"
        "assert 'wrapt' not in type(keras.__spec__.loader).__module__\n"
        "assert importlib.resources.files('keras').joinpath('__init__.py').read_text()\n",
        encoding="utf-8",
    )
    ended = run_launched(script, tmp_path, ["--out", "run"])
    assert ended.code == 0, ended.errors
