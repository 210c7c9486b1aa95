"""A dry run says what would be saved, and touches nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.testing import make_run

if TYPE_CHECKING:
    from pathlib import Path

EVERY = smd.SaveConfig(save_interval=1)


def train(hook: smd.Hook, steps: int = 4) -> None:
    model, loss = nn.Sequential(nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 1)), nn.MSELoss()
    hook.register_module(model)
    hook.register_loss(loss)
    for number in range(steps):
        loss(model(torch.ones(2, 10)), torch.ones(2, 1)).backward()
        hook.save_scalar("x", number)
        hook.save_tensor("y", torch.ones(3), "mine")
        hook.flush()
    hook.export_collections()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "dry run" in each.getMessage()]


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_dry_run_writes_nothing_to_disk(tmp_path: Path, format: str) -> None:
    hook = smd.Hook(tmp_path / "run", save_all=True, save_config=EVERY, dry_run=True, format=format)
    assert hook.dry_run
    train(hook)
    hook.close()
    assert list(tmp_path.iterdir()) == []


def test_dry_run_in_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    make_run(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with smd.Hook(tmp_path, save_all=True, save_config=EVERY, dry_run=True) as hook:
        train(hook)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_the_log_has_names_and_bytes_once_for_each_kind_of_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Linear(10, 5)
    hook = smd.Hook(
        tmp_path, dry_run=True, save_config=EVERY, include_collections=["weights", "biases"]
    )
    hook.get_collection("biases").save_config = smd.SaveConfig(save_interval=2)
    hook.get_collection("biases").reduction_config = smd.ReductionConfig(["min", "max"])
    hook.register_module(model)
    for _ in range(6):
        model(torch.ones(1, 10)).sum().backward()
    hook.close()
    first, second = lines(caplog)
    assert "step 0 (GLOBAL)" in first
    # 200 bytes of weights and two numbers.
    assert "2 tensors, 216 B" in first
    assert "Linear_weight (raw)" in first
    assert "Linear_bias (min, max)" in first
    assert "step 1 (GLOBAL)" in second
    assert "1 tensors, 200 B" in second
    assert "Linear_bias" not in second


def test_many_names_are_not_all_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(*[nn.Linear(2, 2, bias=False) for _ in range(50)])
    hook = smd.Hook(tmp_path, dry_run=True, save_config=EVERY, include_collections="weights")
    hook.register_module(model)
    model(torch.ones(1, 2))
    hook.close()
    (line,) = lines(caplog)
    assert "50 tensors, 800 B" in line
    assert "and 30 more" in line


def test_steps_that_save_nothing_are_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Linear(2, 2)
    hook = smd.Hook(tmp_path, dry_run=True, save_config=smd.SaveConfig(end_step=0), save_all=True)
    hook.register_module(model)
    with caplog.at_level(logging.WARNING):
        model(torch.ones(1, 2))
        hook.close()
    assert lines(caplog) == []


def test_numbers_in_the_docs_are_those_of_a_real_run(tmp_path: Path) -> None:
    found: list[Any] = []
    for dry_run in (True, False):
        hook = smd.Hook(tmp_path / "run", save_all=True, save_config=EVERY, dry_run=dry_run)
        train(hook)
        hook.close()
        stats = hook.stats()
        found.append((stats.steps, stats.saved_steps, stats.collections))
    assert found[0] == found[1]


def test_training_is_the_same(tmp_path: Path) -> None:
    def run(hooked: bool) -> dict[str, Any]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        hook = (
            smd.Hook(tmp_path, save_all=True, save_config=EVERY, dry_run=True) if hooked else None
        )
        if hook is not None:
            hook.register_module(model)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(3, 4)).square().sum().backward()
            optimizer.step()
        if hook is not None:
            hook.close()
        return dict(model.state_dict())

    plain, hooked = run(False), run(True)
    assert all(torch.equal(plain[name], hooked[name]) for name in plain)
