"""`overwrite=True` of a hook and `smdebug run --overwrite` replace a finished run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.unmodified import run_launched
from torch import nn

import smdebug.pytorch as smd
from smdebug.exceptions import SMDebugRuntimeError

if TYPE_CHECKING:
    from pathlib import Path

EVERY = smd.SaveConfig(save_interval=1)
SCRIPT = """
import sys
import torch

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    torch.nn.functional.mse_loss(model(torch.ones(1, 2)), torch.ones(1, 1)).backward()
    optimizer.step()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def train(hook: smd.Hook, steps: int) -> None:
    model = nn.Linear(2, 2)
    hook.register_module(model)
    for _ in range(steps):
        model(torch.ones(1, 2)).sum().backward()
    hook.close()


def test_a_finished_run_is_replaced(tmp_path: Path) -> None:
    train(smd.Hook(tmp_path, save_config=EVERY, save_all=True), 4)
    options: dict[str, Any] = {"include_collections": ["gradients"], "overwrite": True}
    hook = smd.Hook(tmp_path, save_config=EVERY, **options)
    train(hook, 2)
    trial = smd.create_trial(tmp_path)
    assert trial.tensor_names() == ["gradient/Linear_bias", "gradient/Linear_weight"]
    assert trial.steps() == [0, 1]


def test_without_overwrite_the_error_has_three_suggestions(tmp_path: Path) -> None:
    train(smd.Hook(tmp_path, save_config=EVERY, save_all=True), 1)
    with pytest.raises(SMDebugRuntimeError, match="another out_dir") as refused:
        smd.Hook(tmp_path)
    assert "overwrite=True" in str(refused.value)
    assert "resume=True" in str(refused.value)


def test_the_command_replaces_a_finished_run(tmp_path: Path, script: Path) -> None:
    options = ["--out", "run", "--save", "weights", "--every", "1"]
    assert run_launched(script, tmp_path, options, "4").code == 0
    assert smd.create_trial(tmp_path / "run").steps() == [0, 1, 2, 3]
    ended = run_launched(script, tmp_path, [*options, "--overwrite"], "2")
    assert ended.code == 0, ended.errors
    assert smd.create_trial(tmp_path / "run").steps() == [0, 1]


def test_without_overwrite_the_command_has_three_suggestions(tmp_path: Path, script: Path) -> None:
    options = ["--out", "run", "--every", "1"]
    assert run_launched(script, tmp_path, options, "3").code == 0
    ended = run_launched(script, tmp_path, options, "3")
    assert ended.code == 2
    for way in ("--out", "--overwrite", "--resume"):
        assert way in ended.errors
