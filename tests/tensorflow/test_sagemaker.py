"""Scripts in the manner of AWS's examples, unmodified, in a job of SageMaker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from tests.import_paths import missing_paths
from tests.sagemaker_job import assert_as_requested, requests

import smdebug.tensorflow as smd

if TYPE_CHECKING:
    from tests.sagemaker_job import Job, Metrics

JOBS = Path(__file__).parents[1] / "jobs"
PARAMETERS = {"train.save_interval": "2", "eval.save_interval": "1"}
COLLECTIONS = {"weights": {"train.save_interval": "4"}, "gradients": {"reductions": "mean,l2_norm"}}
# Warnings of TensorFlow and Keras are their own.
FLAGS = ("-W", "ignore")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}
SCRIPTS = [
    "train_keras",
    "train_session",
    pytest.param(
        "train_estimator",
        marks=pytest.mark.skipif(
            not hasattr(tf, "estimator"), reason="this TensorFlow has no Estimator"
        ),
    ),
]
TRAIN, EVAL = smd.modes.TRAIN, smd.modes.EVAL


@pytest.mark.parametrize("way", ["get_hook", "from_json"])
def test_fit(sagemaker_job: Job, way: str) -> None:
    sagemaker_job.configure(PARAMETERS, COLLECTIONS)
    ended = sagemaker_job.run(JOBS / "train_keras.py", way, flags=FLAGS, **QUIET)
    train = [logs for kind, logs in ended.told if kind == "TRAIN"]
    evaluated = [logs for kind, logs in ended.told if kind == "EVAL"]
    epochs = [logs for kind, logs in ended.told if kind == "epoch"]
    assert [len(each) for each in (train, evaluated, epochs)] == [6, 2, 2]
    expected: Metrics = {("scalar/learning_rate_TRAIN", 5): 0.1}
    for name in ("loss", "accuracy"):
        # An epoch's end is saved whatever the schedule: with it step 5.
        expected |= {(f"{name}_TRAIN", step): train[step][name] for step in (0, 2, 4, 5)}
        expected |= {(f"{name}_EVAL", step): evaluated[step][name] for step in (0, 1)}
        ends = {2: epochs[0], 5: epochs[1]}
        expected |= {(f"val_{name}_TRAIN", step): ends[step][f"val_{name}"] for step in ends}
    expected |= {("epoch_TRAIN", 2): 0.0, ("epoch_TRAIN", 5): 1.0}
    expected |= {("batch_TRAIN", step): float(step % 3) for step in (0, 2, 4)}
    expected |= {("batch_EVAL", step): 0.0 for step in (0, 1)}
    assert sagemaker_job.metrics(ended) == expected

    trial = sagemaker_job.trial()
    assert trial.tensor("loss").steps(mode=TRAIN) == [0, 2, 4, 5]
    assert [trial.tensor("loss").value(step, mode=EVAL).item() for step in (0, 1)] == [
        logs["loss"] for logs in evaluated
    ]
    assert trial.tensor("hidden/weights/hidden/kernel:0").steps(mode=TRAIN) == [0, 4]
    assert trial.tensor("gradients/hidden/kernelGrad").steps(mode=TRAIN) == [0, 2, 4]
    # Over all modes: three batches, then one of a validation.
    steps = {0: 0, 2: 2, 5: 4, 6: 5}
    assert sagemaker_job.scalars("TRAIN", "loss") == pytest.approx(
        {number: train[step]["loss"] for number, step in steps.items()}
    )
    assert any("8 steps" in line for line in ended.log), ended.output


def test_the_end_of_an_epoch_is_written_once(sagemaker_job: Job) -> None:
    """In format v1 a step that is added to is written again as a whole."""
    sagemaker_job.configure(PARAMETERS, COLLECTIONS)
    sagemaker_job.run(JOBS / "train_keras.py", "get_hook", flags=FLAGS, **QUIET)
    again = sorted(path.name for path in sagemaker_job.tensors.rglob("*.again"))
    # Step 6 was not saved until the epoch ended; a scalar came after it.
    assert again == [f"{step:012}_worker_0-000001.again" for step in (2, 6)]


def losses(told: list[Any], mode: str | None = None) -> list[float]:
    return [value for kind, at, *rest in told if kind == "loss" and at == (mode or at)
            for value in rest]  # fmt: skip


@pytest.mark.parametrize("way", ["get_hook", "from_json"])
def test_session(sagemaker_job: Job, way: str) -> None:
    sagemaker_job.configure(PARAMETERS, COLLECTIONS)
    ended = sagemaker_job.run(JOBS / "train_session.py", way, flags=FLAGS, **QUIET)
    found, name = losses(ended.told), ended.told[0][1]
    assert len(found) == 7
    assert sagemaker_job.metrics(ended) == {
        (f"{name}_TRAIN", step): found[step] for step in (0, 2, 4, 6)
    }
    trial = sagemaker_job.trial()
    assert trial.tensor("weight:0").steps(mode=TRAIN) == [0, 4]
    assert trial.tensor(name).steps(mode=TRAIN) == [0, 2, 4, 6]
    assert sagemaker_job.scalars("TRAIN", name.replace(":", "_")) == pytest.approx(
        {step: found[step] for step in (0, 2, 4, 6)}
    )


@pytest.mark.skipif(not hasattr(tf, "estimator"), reason="this TensorFlow has no Estimator")
@pytest.mark.parametrize("way", ["get_hook", "from_json"])
def test_estimator(sagemaker_job: Job, way: str) -> None:
    sagemaker_job.configure(PARAMETERS, COLLECTIONS)
    ended = sagemaker_job.run(JOBS / "train_estimator.py", way, flags=FLAGS, **QUIET)
    trained, evaluated = losses(ended.told, "TRAIN"), losses(ended.told, "EVAL")
    assert (len(trained), len(evaluated)) == (8, 8)
    trial = sagemaker_job.trial()
    (name,) = trial.tensor_names(collection="losses")
    assert sagemaker_job.metrics(ended) == {
        **{(f"{name}_TRAIN", step): trained[step] for step in (0, 2, 4, 6)},
        **{(f"{name}_EVAL", step): evaluated[step] for step in range(8)},
    }
    assert trial.tensor("kernel:0").steps(mode=TRAIN) == [0, 4]
    shown = sagemaker_job.scalars("EVAL", name.replace(":", "_"))
    assert list(shown) == [4, 5, 6, 7, 12, 13, 14, 15]


@pytest.mark.parametrize("script", SCRIPTS)
def test_training_is_the_same_with_smdebug_disabled(sagemaker_job: Job, script: str) -> None:
    sagemaker_job.configure(PARAMETERS, COLLECTIONS)
    path = JOBS / f"{script}.py"
    off = sagemaker_job.run(path, "get_hook", flags=FLAGS, USE_SMDEBUG="0", **QUIET)
    assert sagemaker_job.is_untouched()
    on = sagemaker_job.run(path, "get_hook", flags=FLAGS, **QUIET)
    assert on.told == off.told
    assert not sagemaker_job.is_untouched()


@pytest.mark.parametrize("kind", ["keras", "session", "estimator"])
def test_a_request_makes_a_hook(tmp_path: Path, kind: str) -> None:
    classes: dict[str, Any] = {
        "keras": smd.KerasHook, "session": smd.SessionHook, "estimator": smd.EstimatorHook,
    }  # fmt: skip
    ways: list[Any] = [
        classes[kind].create_from_json_file,
        lambda each: smd.get_hook(kind, each, True),
    ]
    for source in requests(tmp_path):
        for way in ways:
            smd.del_hook()
            hook = way(source)
            assert type(hook) is classes[kind]
            assert_as_requested(hook, tmp_path)


def test_every_import_path_of_smdebug_1_0() -> None:
    assert missing_paths("tensorflow") == []
