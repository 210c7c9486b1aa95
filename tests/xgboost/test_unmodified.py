"""Zero-code instrumentation: scripts train the same, and their runs are complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unmodified import check_same, run_alone, run_imported, run_launched

from smdebug.trials import create_trial

PROGRAMS = Path(__file__).parent / "programs" / "unmodified"


def test_train(tmp_path: Path) -> None:
    script = PROGRAMS / "train.py"
    collections = "feature_importance,labels,predictions,hyperparameters,average_shap,trees"
    options = ["--out", "run", "--save", collections, "--every", "1"]
    alone = run_alone(script, tmp_path)
    check_same(alone, run_launched(script, tmp_path, options))
    trial = create_trial(str(tmp_path / "run"))
    # Steps of the second call of train continue those of the first.
    assert trial.steps() == list(range(16))
    metric = trial.tensor("validation-logloss")
    assert [metric.value(step).item() for step in metric.steps()] == alone.values("loss")
    assert len(trial.tensor("labels").value(0)) == 50
    assert trial.tensor("hyperparameters/max_depth").value(0).item() == 3
    assert trial.tensor_names(collection="average_shap")


@pytest.mark.parametrize("how", ["launched", "imported"])
def test_an_estimator(how: str, tmp_path: Path) -> None:
    script = PROGRAMS / "estimator.py"
    alone = run_alone(script, tmp_path)
    if how == "launched":
        check_same(alone, run_launched(script, tmp_path, ["--out", "run", "--every", "1"]))
    else:
        parameters = {"save_interval": "1"}
        job = {"LocalPath": str(tmp_path / "run"), "HookParameters": parameters}
        check_same(alone, run_imported(script, tmp_path, job))
    metric = create_trial(str(tmp_path / "run")).tensor("validation_0-rmse")
    assert [metric.value(step).item() for step in metric.steps()] == alone.values("loss")


def test_train_stays_one_function_that_can_be_pickled(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import pickle\n"
        "import xgboost\n"
        "assert xgboost.train is xgboost.training.train is xgboost.sklearn.train\n"
        "assert pickle.loads(pickle.dumps(xgboost.train)) is xgboost.train\n",
        encoding="utf-8",
    )
    ended = run_launched(script, tmp_path, ["--out", "run"])
    assert ended.code == 0, ended.errors
