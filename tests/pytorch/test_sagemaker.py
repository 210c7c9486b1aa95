"""A script in the manner of AWS's examples, unmodified, in a job of SageMaker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.import_paths import missing_paths
from tests.pages import blocks, fenced
from tests.sagemaker_job import check_requests

import smdebug.pytorch as smd

if TYPE_CHECKING:
    from tests.sagemaker_job import Job

SCRIPT = Path(__file__).parents[1] / "jobs" / "train_pytorch.py"
LOSS = "CrossEntropyLoss_output_0"
PARAMETERS = {"train.save_interval": "2", "eval.save_interval": "1"}
COLLECTIONS = {
    "gradients": {"reductions": "mean,l2_norm", "train.save_interval": "4"},
    "custom": {"include_regex": "fc2_output,fc1_output", "save_steps": "1", "end_step": "0"},
}


@pytest.mark.parametrize("way", ["get_hook", "from_json"])
def test_training(sagemaker_job: Job, way: str) -> None:
    sagemaker_job.configure(PARAMETERS, COLLECTIONS)
    ended = sagemaker_job.run(SCRIPT, way)
    losses = {
        mode: [value for kind, at, value in ended.told[:-1] if (kind, at) == ("loss", mode)]
        for mode in ("TRAIN", "EVAL")
    }
    assert [len(losses[mode]) for mode in ("TRAIN", "EVAL")] == [8, 4]
    accuracies = [value for kind, *_, value in ended.told if kind == "accuracy"]
    expected = {
        **{(f"{LOSS}_TRAIN", step): losses["TRAIN"][step] for step in (0, 2, 4, 6)},
        **{(f"{LOSS}_EVAL", step): loss for step, loss in enumerate(losses["EVAL"])},
        # A scalar is of the step at which it is saved: the last one of each evaluation.
        **dict(zip([("scalar/accuracy_EVAL", 1), ("scalar/accuracy_EVAL", 3)], accuracies,
                   strict=True)),
    }  # fmt: skip
    assert sagemaker_job.metrics(ended) == expected

    trial = sagemaker_job.trial()
    train, evaluating = smd.modes.TRAIN, smd.modes.EVAL
    assert trial.tensor(LOSS).steps(mode=train) == [0, 2, 4, 6]
    assert [trial.tensor(LOSS).value(step, mode=evaluating) for step in range(4)] == losses["EVAL"]
    assert trial.tensor("gradient/Net_fc1.weight").steps(mode=train) == [0, 4]
    assert set(trial.tensor("gradient/Net_fc1.weight").reduction_values(0)) == {
        ("mean", False), ("l2", False),
    }  # fmt: skip
    assert trial.tensor("fc2_output_0").steps(mode=train) == [1]
    assert trial.tensor("scalar/right").steps(mode=evaluating) == [1, 3]
    # TensorBoard's steps are those over all modes: 4 of training, 2 of an evaluation, and so on.
    assert sagemaker_job.scalars("TRAIN", LOSS) == pytest.approx(
        {0: losses["TRAIN"][0], 2: losses["TRAIN"][2], 6: losses["TRAIN"][4], 8: losses["TRAIN"][6]}
    )
    assert sagemaker_job.scalars("EVAL", "scalar/accuracy") == pytest.approx(
        dict(zip([5, 11], accuracies, strict=True))
    )
    assert any("12 steps" in line for line in ended.log), ended.output


def test_training_is_the_same_with_smdebug_disabled(sagemaker_job: Job) -> None:
    sagemaker_job.configure(PARAMETERS, COLLECTIONS)
    off = sagemaker_job.run(SCRIPT, "get_hook", USE_SMDEBUG="0")
    assert sagemaker_job.is_untouched()
    on = sagemaker_job.run(SCRIPT, "get_hook")
    assert on.told == off.told
    assert not sagemaker_job.is_untouched()


def test_a_job_whose_hook_was_not_configured(sagemaker_job: Job) -> None:
    missing = str(sagemaker_job.root / "missing.json")
    sagemaker_job.run(SCRIPT, "get_hook", SMDEBUG_CONFIG_FILE_PATH=missing)
    assert sagemaker_job.is_untouched()


def shown(language: str) -> list[str]:
    """The blocks of the page in a language."""
    return [block.code for block in fenced("docs/sagemaker.md", language)]


def shell(folder: Path, program: str) -> str:
    """Runs commands as a reader would type them."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-e", "-c", program], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_script_of_the_page_in_the_job_of_the_page(tmp_path: Path) -> None:
    (script,) = blocks("docs/sagemaker.md", "pytorch")
    *_, job = shown("json")
    (commands,) = shown("sh")
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "job.json").write_text(job)
    printed = shell(tmp_path, commands)
    assert json.loads(printed.splitlines()[-1])["MetricName"] in (
        "MSELoss_output_0_TRAIN", "scalar/rate_TRAIN",
    )  # fmt: skip
    trial = smd.create_trial(str(tmp_path / "output" / "tensors"))
    assert trial.tensor("MSELoss_output_0").steps() == list(range(0, 200, 20))
    assert trial.tensor("gradient/Sequential_0.weight").steps() == list(range(0, 200, 20))
    assert len(trial.tensor("scalar/rate").steps()) == 200
    assert list((tmp_path / "output" / "tensors" / "index").rglob("*.json"))
    assert not (tmp_path / "output" / "tensors" / "training_job_end.ts").exists()


def test_rules_in_the_job_stop_it(sagemaker_job: Job) -> None:
    """The job of the page, with a script that divides by zero."""
    _, job, _ = shown("json")
    parameters = json.loads(job)["HookParameters"]
    sagemaker_job.configure({**parameters, "save_interval": "1"})
    (script,) = blocks("docs/sagemaker.md", "pytorch")
    path = sagemaker_job.root / "train.py"
    path.write_text(script.replace("range(200)", "range(100_000)").replace("lr=0.1", "lr=1e30"))
    with pytest.raises(AssertionError, match="RuleEvaluationConditionMet") as caught:
        sagemaker_job.run(path)
    assert "Rule NonFinite" in str(caught.value)
    trial = smd.create_trial(str(sagemaker_job.tensors))
    assert {each.rule for each in trial.findings()} >= {"NonFinite"}
    assert trial.steps()[-1] < 99_999


def test_a_request_makes_a_hook(tmp_path: Path) -> None:
    ways: list[Any] = [smd.Hook.create_from_json_file, lambda each: smd.get_hook(each, True)]
    check_requests(smd, ways, tmp_path)


def test_every_import_path_of_smdebug_1_0() -> None:
    assert missing_paths("pytorch") == []
