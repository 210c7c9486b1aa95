"""What the hook says it did, and what can be read while it is at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.hook.stats import CollectionStats

if TYPE_CHECKING:
    from pathlib import Path

EVERY = smd.SaveConfig(save_interval=1)


def run_size(out_dir: Path, *folders: str) -> int:
    return sum(
        path.stat().st_size
        for folder in folders
        for path in (out_dir / folder).rglob("*")
        if path.is_file()
    )


def test_stats_of_a_new_hook_are_zero(tmp_path: Path) -> None:
    stats = smd.Hook(tmp_path).stats()
    assert (stats.steps, stats.saved_steps, stats.bytes, stats.segments) == (0, 0, 0, 0)
    assert stats.collections == {}
    assert stats.seconds_waited == 0


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_steps_tensors_and_bytes_are_counted_exactly(tmp_path: Path, format: str) -> None:
    model, loss = nn.Sequential(nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 1)), nn.MSELoss()
    hook = smd.Hook(
        tmp_path, save_config=smd.SaveConfig(save_interval=2), format=format,
        include_collections=["weights", "biases", "gradients", "relu"],
    )  # fmt: skip
    hook.get_collection("biases").reduction_config = smd.ReductionConfig(["min", "max"], ["mean"])
    hook.get_collection("gradients").save_config = smd.SaveConfig(save_interval=3)
    hook.get_collection("relu").include("1_output")
    hook.register_module(model)
    hook.register_loss(loss)
    for _ in range(7):
        loss(model(torch.ones(4, 10)), torch.ones(4, 1)).backward()
    hook.close()
    stats = hook.stats()
    assert stats.steps == 7
    # 0, 2, 4, 6 and 0, 3, 6.
    assert stats.saved_steps == 5
    assert stats.collections == {
        "weights": CollectionStats(2 * 4, (50 + 5) * 4 * 4),
        "biases": CollectionStats(2 * 4, 2 * 3 * 8 * 4),
        "gradients": CollectionStats(4 * 3, (50 + 5 + 5 + 1) * 4 * 3),
        "relu": CollectionStats(1 * 4, 4 * 5 * 4 * 4),
        "losses": CollectionStats(1 * 4, 4 * 4),
    }
    assert stats.seconds > 0
    assert 0 <= stats.seconds_waited <= stats.seconds
    assert stats.segments >= 1
    raw = (50 + 5) * 4 * 4 + 61 * 4 * 3 + 80 * 4
    assert raw <= stats.bytes


def test_a_tensor_of_two_collections_counts_in_both(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    hook = smd.Hook(tmp_path, save_config=EVERY, include_collections=["weights", "mine"])
    hook.get_collection("mine").include("weight")
    hook.register_module(model)
    model(torch.ones(1, 3))
    hook.close()
    expected = CollectionStats(1, 24)
    assert hook.stats().collections == {"weights": expected, "mine": CollectionStats(1, 24)}


def test_scalars_and_tensors_of_the_script_count(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    hook = smd.Hook(tmp_path, save_config=smd.SaveConfig(save_steps=[1], end_step=0))
    hook.register_module(model)
    for number in range(4):
        model(torch.ones(1, 3))
        if number == 2:
            hook.save_scalar("x", 1.0)
        hook.save_tensor("y", torch.ones(5), "mine")
    hook.close()
    stats = hook.stats()
    assert stats.steps == 4
    assert stats.saved_steps == 2
    assert stats.collections == {
        "scalars": CollectionStats(1, 8),
        "mine": CollectionStats(1, 20),
    }


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_bytes_are_those_of_the_files_published(tmp_path: Path, format: str) -> None:
    model = nn.Linear(100, 100)
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True, format=format)
    hook.register_module(model)
    for _ in range(3):
        model(torch.ones(1, 100)).sum().backward()
    hook.flush()
    published = run_size(tmp_path, "events", "index")
    assert published >= 3 * 100 * 100 * 4 * 2
    assert hook.stats().bytes == published


def test_waiting_for_the_writer_is_counted(tmp_path: Path) -> None:
    model = nn.Linear(1000, 1000)
    # Less than one step: each must be written before the next is taken, and nothing else has it
    # written before.
    hook = smd.Hook(
        tmp_path, save_config=EVERY, include_collections="weights", queue_bytes=1000,
        flush_seconds=1000,
    )  # fmt: skip
    hook.register_module(model)
    for _ in range(5):
        model(torch.ones(1, 1000))
    hook.close()
    stats = hook.stats()
    assert stats.seconds_waited > 0
    assert stats.seconds >= stats.seconds_waited
    assert smd.create_trial(tmp_path).tensor("Linear_weight").steps() == list(range(5))


def test_stats_are_formatted_on_one_line(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True)
    model = nn.Linear(2, 2)
    hook.register_module(model)
    for _ in range(2):
        model(torch.ones(1, 2))
    hook.close()
    text = str(hook.stats())
    assert text.startswith("2 of 2 steps saved, ")
    assert "\n" not in text


# ---- reading during training


@pytest.mark.parametrize("format", ["v1", "v2"])
def test_after_a_flush_the_current_step_is_there(tmp_path: Path, format: str) -> None:
    model = nn.Linear(2, 2)
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True, format=format, flush_seconds=1000)
    hook.register_module(model)
    trial: Any = None
    for number in range(4):
        model(torch.ones(1, 2)).sum().backward()
        hook.save_scalar("x", number)
        hook.flush()
        trial = smd.create_trial(tmp_path) if trial is None else trial
        trial.refresh_data()
        assert trial.steps() == list(range(number + 1))
        assert trial.tensor("gradient/Linear_weight").steps() == list(range(number + 1))
        assert float(trial.tensor("scalar/x").value(number)[0]) == number
        assert not trial.loaded_all_steps
    hook.close()
    trial.refresh_data()
    assert trial.loaded_all_steps
    assert trial.steps() == [0, 1, 2, 3]


def test_a_flush_in_the_middle_of_a_step_loses_nothing_of_it(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True)
    hook.register_module(model)
    for _ in range(3):
        output = model(torch.ones(1, 2))
        hook.flush()
        assert "Sequential_output_0" in smd.create_trial(tmp_path).tensor_names()
        output.sum().backward()
    hook.close()
    trial = smd.create_trial(tmp_path)
    for name in trial.tensor_names():
        assert trial.tensor(name).steps() == [0, 1, 2], name
    assert sum(name.startswith("gradient/") for name in trial.tensor_names()) == 4
    assert hook.stats().saved_steps == 3


def test_a_flush_before_the_first_step_and_after_nothing_new(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True)
    hook.flush()
    hook.register_module(model)
    model(torch.ones(1, 2))
    hook.flush()
    hook.flush()
    hook.close()
    assert smd.create_trial(tmp_path).steps() == [0]


def test_finished_steps_are_published_automatically(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    hook = smd.Hook(tmp_path, save_config=EVERY, save_all=True, flush_seconds=0)
    hook.register_module(model)
    for _ in range(3):
        model(torch.ones(1, 2))
    # Step 1 is complete since step 2 began: waiting for it ends.
    trial = smd.create_trial(tmp_path, wait_seconds=60)
    trial.wait_for_steps([0, 1], timeout=60)
    hook.close()
