"""A script in the manner of AWS's examples, unmodified, in a job of SageMaker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.import_paths import missing_paths
from tests.sagemaker_job import check_requests

import smdebug.xgboost as smd

if TYPE_CHECKING:
    from tests.sagemaker_job import Job

SCRIPT = Path(__file__).parents[1] / "jobs" / "train_xgboost.py"
COLLECTIONS = {
    "metrics": {"save_interval": "2"},
    "feature_importance": {"save_interval": "4"},
    "hyperparameters": None,
}


@pytest.mark.parametrize("way", ["get_hook", "from_json", "from_config"])
def test_training(sagemaker_job: Job, way: str) -> None:
    sagemaker_job.configure(None, COLLECTIONS)
    ended = sagemaker_job.run(SCRIPT, way)
    results = dict(ended.told)["results"]
    courses = {
        f"{data}-{metric}": values
        for data, metrics in results.items()
        for metric, values in metrics.items()
    }
    assert set(courses) == {"train-rmse", "train-mae", "validation-rmse", "validation-mae"}
    assert sagemaker_job.metrics(ended) == {
        (f"{name}_GLOBAL", number): values[number]
        for name, values in courses.items()
        for number in (0, 2, 4)
    }
    trial = sagemaker_job.trial()
    for name, values in courses.items():
        assert [trial.tensor(name).value(number).item() for number in (0, 2, 4)] == values[::2]
        assert sagemaker_job.scalars("GLOBAL", name) == pytest.approx(
            {number: values[number] for number in (0, 2, 4)}
        )
    assert trial.tensor("feature_importance/gain/f0").steps() == [0, 4]
    # XGBoost's own interval, where the file gives none.
    assert trial.tensor("hyperparameters/eta").steps() == [0]
    assert any("6 steps" in line for line in ended.log), ended.output


def test_training_is_the_same_with_smdebug_disabled(sagemaker_job: Job) -> None:
    sagemaker_job.configure({"save_interval": "1"}, COLLECTIONS)
    off = sagemaker_job.run(SCRIPT, "get_hook", USE_SMDEBUG="0")
    assert sagemaker_job.is_untouched()
    on = sagemaker_job.run(SCRIPT, "get_hook")
    assert on.told == off.told
    assert not sagemaker_job.is_untouched()


def test_a_request_makes_a_hook(tmp_path: Path) -> None:
    ways: list[Any] = [smd.Hook.create_from_json_file, smd.Hook.hook_from_config, smd.get_hook]
    check_requests(smd, ways, tmp_path)


def test_every_import_path_of_smdebug_1_0() -> None:
    assert missing_paths("xgboost") == []
