"""When saving fails: training continues, or an error is raised, as configured."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.exceptions import InvalidCollectionConfiguration, WriteFailed
from smdebug.storage.format.keys import END_KEY

if TYPE_CHECKING:
    from pathlib import Path

EVERY = smd.SaveConfig(save_interval=1)


def in_the_way(out_dir: Path, folder: str = "events") -> Path:
    """A directory that cannot be created: a file has its path."""
    out_dir.mkdir(exist_ok=True)
    (out_dir / folder).write_text("in the way")
    return out_dir


def training(hook: smd.Hook | None, steps: int = 6, flush: bool = False) -> dict[str, Any]:
    """Trains a small model; flushes after every step, so that a failure is met by the next."""
    torch.manual_seed(3)
    model, loss = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1)), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if hook is not None:
        hook.register_module(model)
        hook.register_loss(loss)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(torch.randn(5, 3)), torch.zeros(5, 1)).backward()
        optimizer.step()
        if hook is not None and flush:
            hook.flush()
    return {**model.state_dict(), "random": torch.get_rng_state()}


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name]) for name, value in first.items()
    )


def errors_in(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [
        record
        for record in caplog.records
        if record.levelno >= logging.ERROR and record.name == "smdebug.hook"
    ]


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("flush", [True, False], ids=["flush", "no-flush"])
@pytest.mark.parametrize("folder", ["events", "index", "collections"])
def test_training_is_not_affected_if_nothing_can_be_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, format: str, flush: bool, folder: str
) -> None:
    out_dir = in_the_way(tmp_path / "run", folder)
    expected = training(None)
    hook = smd.Hook(out_dir, save_all=True, save_config=EVERY, format=format)
    assert same(training(hook, flush=flush), expected)
    hook.close()
    (error,) = errors_in(caplog)
    assert error.exc_info is not None
    assert isinstance(error.exc_info[1], WriteFailed)
    assert "saving has stopped" in error.getMessage()
    assert "Traceback" in caplog.text
    assert "is not complete" in caplog.text
    assert not (out_dir / END_KEY).exists()
    assert hook.closed


def test_lost_steps_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hook = smd.Hook(tmp_path / "run", save_all=True, save_config=EVERY, flush_seconds=1000)
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    hook.register_module(model)
    for number in range(5):
        model(torch.ones(1, 3)).sum().backward()
        if number == 1:
            hook.flush()
            # The directory is gone, and a file has its path.
            (tmp_path / "run").rename(tmp_path / "elsewhere")
            (tmp_path / "run").write_text("in the way")
    hook.close()
    (error,) = errors_in(caplog)
    assert "lost" in error.getMessage()
    assert "2 to 4" in error.getMessage()
    assert smd.create_trial(tmp_path / "elsewhere").steps() == [0, 1]


def test_a_directory_that_cannot_be_made_is_a_failure_like_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    expected = training(None)
    hook = smd.Hook(tmp_path / "file" / "run", save_all=True, save_config=EVERY)
    assert same(training(hook), expected)
    hook.save_scalar("x", 1.0)
    hook.save_tensor("y", torch.ones(2))
    hook.flush()
    hook.close()
    assert len(errors_in(caplog)) == 1
    assert (tmp_path / "file").read_text() == "in the way"


def test_scalars_after_a_failure_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = smd.Hook(in_the_way(tmp_path / "run"), save_all=True, save_config=EVERY)
    training(hook, flush=True)
    hook.save_scalar("x", 1.0)
    hook.save_tensor("y", torch.ones(2), "z")
    hook.record_tensor_value("loss", torch.ones(1))
    hook.export_collections()
    hook.flush()
    hook.close()
    assert len(errors_in(caplog)) == 1


def test_on_error_raise_raises_in_training(tmp_path: Path) -> None:
    hook = smd.Hook(
        in_the_way(tmp_path / "run"), save_all=True, save_config=EVERY, on_error="raise"
    )
    with pytest.raises(WriteFailed, match="could not write"):
        training(hook, flush=True)
    # Raised once: training may catch it and continue.
    training(hook, flush=True)
    hook.close()


def test_without_a_flush_the_failure_is_raised_by_close_at_the_latest(tmp_path: Path) -> None:
    hook = smd.Hook(
        in_the_way(tmp_path / "run"), save_all=True, save_config=EVERY, on_error="raise"
    )
    with pytest.raises(WriteFailed):  # noqa: PT012 - whichever of the two meets it first
        training(hook)
        hook.close()
    hook.close()
    assert hook.closed


def test_failure_is_raised_at_the_end_of_a_with_block(tmp_path: Path) -> None:
    def block() -> None:
        out_dir = in_the_way(tmp_path / "run")
        with smd.Hook(out_dir, save_all=True, save_config=EVERY, on_error="raise") as hook:
            training(hook)

    with pytest.raises(WriteFailed):
        block()


def test_exception_of_the_script_is_not_hidden(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def block() -> None:
        out_dir = in_the_way(tmp_path / "run")
        with smd.Hook(out_dir, save_all=True, save_config=EVERY, on_error="raise") as hook:
            training(hook, steps=1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert "is not complete" in caplog.text


class Odd(torch.Tensor):
    """A tensor that cannot be copied; training never copies it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.clone, torch.Tensor.detach):
            raise ZeroDivisionError("no copies of me")
        return super().__torch_function__(func, types, args, kwargs or {})


class OddOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 1)
        self.inner = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner(torch.ones(2).as_subclass(Odd))
        output: torch.Tensor = self.fc(x)
        return output


def test_an_exception_in_a_callback_stays_in_the_hook(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = smd.Hook(tmp_path, save_all=True, save_config=EVERY)
    model = OddOutput()
    hook.register_module(model)
    for _ in range(3):
        model(torch.ones(1, 3)).sum().backward()
        assert model.fc.weight.grad is not None
    hook.close()
    (error,) = errors_in(caplog)
    assert "no copies of me" in error.getMessage()
    assert error.exc_info is not None


def test_on_error_raise_raises_callback_errors_at_the_next_step(tmp_path: Path) -> None:
    hook = smd.Hook(tmp_path, save_all=True, save_config=EVERY, on_error="raise")
    model = OddOutput()
    hook.register_module(model)
    model(torch.ones(1, 3)).sum().backward()
    with pytest.raises(ZeroDivisionError, match="no copies of me"):
        model(torch.ones(1, 3))
    model(torch.ones(1, 3)).sum().backward()
    hook.close()


@pytest.mark.parametrize("on_error", ["warn", "raise"])
def test_invalid_configuration_raises_with_any_on_error(tmp_path: Path, on_error: str) -> None:
    hook = smd.Hook(tmp_path, on_error=on_error, include_collections="mine")
    model = nn.Linear(2, 2)
    hook.register_module(model)
    with pytest.raises(InvalidCollectionConfiguration, match="mine"):
        model(torch.ones(1, 2))
    hook.get_collection("mine").include("weight")
    model(torch.ones(1, 2))
    hook.close()
    assert smd.create_trial(tmp_path).tensor_names() == ["Linear_weight"]


def test_failures_leave_no_hook_on_the_model(tmp_path: Path) -> None:
    hook = smd.Hook(in_the_way(tmp_path / "run"), save_all=True, save_config=EVERY)
    model = nn.Linear(2, 2)
    hook.register_module(model)
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        hook.flush()
    hook.close()
    assert not model._forward_pre_hooks
    assert not model._forward_hooks
    assert not model.weight._backward_hooks
