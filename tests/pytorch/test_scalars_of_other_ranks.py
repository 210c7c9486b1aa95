"""A rank that does not write does not wait for its device when a scalar is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.exceptions import SMDebugTypeError

if TYPE_CHECKING:
    from pathlib import Path

# What brings values of a tensor to the host, and waits for its device.
WAITING = {
    *("cpu", "item", "to", "tolist", "numpy", "copy_", "clone", "type", "float", "double"),
    *("__array__", "__float__", "__int__", "__index__", "__bool__", "__format__", "__repr__"),
}


class OnDevice(torch.Tensor):
    """A tensor that records its calls."""

    asked: list[str]

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        cls.asked.append(getattr(function, "__name__", str(function)))
        return super().__torch_function__(function, types, args, kwargs or {})


@pytest.fixture
def on_device() -> torch.Tensor:
    OnDevice.asked = []
    tensor: torch.Tensor = torch.ones(()).as_subclass(OnDevice)
    return tensor


def rank(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", str(number))
    monkeypatch.setenv("WORLD_SIZE", "2")


def test_a_rank_that_does_not_write_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_device: torch.Tensor
) -> None:
    rank(1, monkeypatch)
    model = nn.Linear(2, 2)
    hook = smd.Hook(tmp_path)
    hook.register_module(model)
    hook.save_scalar("before", on_device)
    model(torch.ones(1, 2))
    hook.save_scalar("loss", on_device, sm_metric=True)
    hook.close()
    assert not WAITING & set(OnDevice.asked), OnDevice.asked
    assert list(tmp_path.iterdir()) == []


def test_a_closed_hook_does_not_wait(tmp_path: Path, on_device: torch.Tensor) -> None:
    hook = smd.Hook(tmp_path)
    hook.close()
    hook.save_scalar("loss", on_device)
    assert not WAITING & set(OnDevice.asked), OnDevice.asked


def test_a_rank_that_writes_saves_the_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_device: torch.Tensor
) -> None:
    rank(0, monkeypatch)
    hook = smd.Hook(tmp_path)
    hook.save_scalar("loss", on_device)
    hook.close()
    assert WAITING & set(OnDevice.asked)
    assert float(smd.create_trial(tmp_path).tensor("scalar/loss").value(0)) == 1.0


@pytest.mark.parametrize("number", [0, 1])
def test_invalid_scalar_is_rejected_on_every_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    rank(number, monkeypatch)
    hook = smd.Hook(tmp_path)
    for value in (torch.ones(2), "text", object()):
        with pytest.raises(SMDebugTypeError, match=r"loss|value"):
            hook.save_scalar("loss", value)
