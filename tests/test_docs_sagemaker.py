"""What docs/sagemaker.md shows is what the library reads; its scripts run in tests/pytorch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pages import program

from smdebug.config import environment
from smdebug.config.json_config import JsonConfig, parse_json_config
from smdebug.config.lenient_json import parse_json
from smdebug.config.options import DEFAULT_SAGEMAKER_OUTDIR
from smdebug.mode_keys import ModeKeys
from smdebug.rules import hook_configuration, rule_names

TEXT = (Path(__file__).parent.parent / "docs" / "sagemaker.md").read_text(encoding="utf-8")
REQUEST, RULES, EMULATED = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)


def parsed(text: str) -> JsonConfig:
    return parse_json_config(parse_json(text))


def test_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    # As a person writes it: with commas that JSON does not have.
    assert re.search(r",\s*\]", REQUEST)
    job = parsed(REQUEST)
    assert job.options.out_dir == DEFAULT_SAGEMAKER_OUTDIR
    assert job.options.include_workers == "all"
    intervals = [job.options.save_config.get_save_config(mode).save_interval for mode in ModeKeys]
    assert intervals == [50, 1, 500, 500]
    weights, gradients, activations = job.collections
    assert weights.reduction_config is not None
    assert weights.reduction_config.names == ("mean", "std", "l2")
    assert gradients.save_config is not None
    # The collection's own interval comes after the hook's of a mode.
    assert gradients.save_config.get_save_config(ModeKeys.TRAIN).save_interval == 10
    assert activations.include_regex == ["relu_output", "tanh_output"]
    assert activations.save_config is not None
    assert activations.save_config.get_save_config(ModeKeys.EVAL).save_steps == [0, 1, 2]


def test_rules_in_the_job() -> None:
    options = parsed(RULES).options
    assert options.out_dir == "s3://bucket/debug"
    assert options.rules == ("NonFinite", "VanishingGradient:threshold=1e-6", "LossNotDecreasing")
    assert options.on_finding == "stop"


def test_the_program_that_needs_no_framework(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", program("docs/sagemaker.md", "core")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gradients {'reductions': 'abs_mean,zeros'")
    assert "relu_output {'include_regex': '.*relu_output'" in done.stdout


def test_the_emulated_job() -> None:
    assert parsed(EMULATED).options.out_dir == "output/tensors"


@pytest.mark.parametrize(
    "name",
    [
        *("SMDEBUG_CONFIG_FILE_PATH", "TENSORBOARD_CONFIG_FILE_PATH"),
        *("CHECKPOINT_CONFIG_FILE_PATH", "SAGEMAKER_METRICS_DIRECTORY"),
    ],
)
def test_places(name: str) -> None:
    (variable,) = [each for each in environment.VARIABLES if each.name == name]
    (row,) = [line for line in TEXT.splitlines() if line.endswith(f"| `{name}` |")]
    assert f"`{variable.default}`" in row or "nowhere" in row


@pytest.mark.parametrize("name", rule_names())
def test_a_request_that_feeds_rules_is_one_that_sagemaker_takes(name: str) -> None:
    """Values of the request must be strings."""
    needed: dict[str, Any] = {
        "AllZero": {"collection_names": "weights"}, "UnchangedTensor": {"tensor_regex": "a"},
        "TensorVariance": {"tensor_regex": "a", "max_threshold": 1},
        "SimilarAcrossRuns": {"other_trial": "runs/other", "tensor_regex": "a"},
    }  # fmt: skip
    request = hook_configuration([{"rule": name, **needed.get(name, {})}], save_interval=100)
    for each in request["CollectionConfigurations"]:
        assert all(isinstance(value, str) for value in each["CollectionParameters"].values())
    parse_json_config(request)
