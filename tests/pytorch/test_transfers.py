"""Copies from an accelerator are in flight until their event: every hand-over waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from smdebug.pytorch import Hook, ReductionConfig, SaveConfig, adapter, create_trial, modes, tensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Device:
    """An accelerator with copies that arrive when the event recorded after them is reached."""

    def __init__(self) -> None:
        self._in_flight: list[Callable[[], Any]] = []

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        host, copy = torch.full_like(tensor, torch.nan), tensor.clone()
        self._in_flight.append(lambda: host.copy_(copy))
        return host

    def record_event(self, device: torch.device) -> Device:
        event = Device()
        event._in_flight, self._in_flight = self._in_flight, []
        return event

    def synchronize(self) -> None:
        for arrive in self._in_flight:
            arrive()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has every tensor captured as one of an accelerator."""
    fake = Device()
    monkeypatch.setattr(tensors, "to_host", fake.to_host)
    monkeypatch.setattr(tensors, "record_event", fake.record_event)

    def capture(
        self: Any, name: str, tensor: Any, request: Any, last: Any = None, time: Any = None
    ) -> tensors.DeviceTensorCapture:
        return tensors.DeviceTensorCapture(name, tensor.detach(), request, time)

    monkeypatch.setattr(adapter.PytorchAdapter, "capture", capture)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("raw", [False, True], ids=["reductions", "raw"])
def test_every_way_to_the_writer_waits_for_the_copies(tmp_path: Path, raw: bool) -> None:
    config = ReductionConfig(["min", "max"], save_raw_tensor=raw)
    hook = Hook(tmp_path, save_config=SaveConfig(save_interval=1), reduction_config=config)
    model = nn.Linear(2, 2)
    hook.register_module(model)
    saved: dict[str, float] = {}

    def save(name: str) -> None:
        saved[name] = float(len(saved) + 1)
        hook.save_tensor(name, torch.tensor([-saved[name], saved[name]]), "mine")
        hook.save_scalar(name, torch.tensor(saved[name]))

    save("before the first step, flushed")
    hook.flush()
    save("before the first step")
    hook.set_mode(modes.TRAIN)
    model(torch.ones(1, 2))
    save("in a step, flushed")
    hook.flush()
    save("in a step after a flush")
    hook.set_mode(modes.EVAL)
    model(torch.ones(1, 2))
    hook.set_mode(modes.TRAIN)
    save("of an older step")
    hook.set_mode(modes.EVAL)
    model(torch.ones(1, 2))
    save("in the last step")
    hook.close()
    trial = create_trial(str(tmp_path))
    for name, value in saved.items():
        tensor, scalar = trial.tensor(name), trial.tensor(f"scalar/{name}")
        (step,) = tensor.steps()
        assert tensor.reduction_value(step, "max") == value
        assert tensor.reduction_value(step, "min") == -value
        if raw:
            np.testing.assert_array_equal(tensor.value(step), [-value, value])
        assert float(scalar.value(scalar.steps()[0])) == value
