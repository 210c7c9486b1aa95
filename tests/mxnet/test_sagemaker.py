"""A script in the manner of AWS's examples, unmodified, in a job of SageMaker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.import_paths import missing_paths
from tests.sagemaker_job import check_requests

import smdebug.mxnet as smd

if TYPE_CHECKING:
    from tests.sagemaker_job import Job

SCRIPT = Path(__file__).parents[1] / "jobs" / "train_mxnet.py"
# MXNet 1.9 uses names that numpy 1.23 is about to drop.
MXNET_ITSELF = ("-W", "ignore::DeprecationWarning")
PARAMETERS = {"train.save_interval": "2", "eval.save_interval": "1"}
COLLECTIONS = {"gradients": {"reductions": "mean", "save_interval": "4"}}
LOSS = "loss_output_0"


@pytest.mark.parametrize("way", ["get_hook", "from_json"])
def test_training(sagemaker_job: Job, way: str) -> None:
    sagemaker_job.configure(PARAMETERS, COLLECTIONS)
    ended = sagemaker_job.run(SCRIPT, way, flags=MXNET_ITSELF)
    losses = {
        mode: [np.array(values) for kind, at, values in ended.told[:-1] if at == mode]
        for mode in ("TRAIN", "EVAL")
    }
    means = {mode: [float(each.mean()) for each in losses[mode]] for mode in losses}
    assert [len(means[mode]) for mode in ("TRAIN", "EVAL")] == [6, 2]
    found = sagemaker_job.metrics(ended)
    assert found == pytest.approx(
        {
            **{(f"{LOSS}_TRAIN", step): means["TRAIN"][step] for step in (0, 2, 4)},
            **{(f"{LOSS}_EVAL", step): means["EVAL"][step] for step in (0, 1)},
            **{("scalar/epoch_EVAL", step): float(step) for step in (0, 1)},
        },
        rel=1e-12,
    )
    trial = sagemaker_job.trial()
    train, evaluating = sorted(trial.modes(), key=lambda mode: mode.value)
    for mode, steps in ((train, (0, 2, 4)), (evaluating, (0, 1))):
        for step in steps:
            value = trial.tensor(LOSS).value(step, mode=mode)
            np.testing.assert_array_equal(value, losses[mode.name][step].astype(np.float32))
    assert trial.tensor("gradient/net_dense0_weight").steps(mode=train) == [0, 4]
    # Losses of many elements are no scalars for TensorBoard; what was saved as one is.
    assert sagemaker_job.scalars("EVAL", "scalar/epoch") == {3: 0.0, 7: 1.0}
    assert any("8 steps" in line for line in ended.log), ended.output


def test_training_is_the_same_with_smdebug_disabled(sagemaker_job: Job) -> None:
    sagemaker_job.configure(PARAMETERS, COLLECTIONS)
    off = sagemaker_job.run(SCRIPT, "get_hook", flags=MXNET_ITSELF, USE_SMDEBUG="0")
    assert sagemaker_job.is_untouched()
    on = sagemaker_job.run(SCRIPT, "get_hook", flags=MXNET_ITSELF)
    assert on.told == off.told
    assert not sagemaker_job.is_untouched()


def test_a_request_makes_a_hook(tmp_path: Path) -> None:
    ways: list[Any] = [smd.Hook.create_from_json_file, smd.get_hook]
    check_requests(smd, ways, tmp_path)


def test_every_import_path_of_smdebug_1_0() -> None:
    assert missing_paths("mxnet") == []
