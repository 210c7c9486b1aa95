"""Copies from an accelerator are in flight until their event: every hand-over waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from smdebug.pytorch import (
    Hook,
    ReductionConfig,
    SaveConfig,
    adapter,
    create_trial,
    modes,
    staging_buffers,
    tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Device:
    """An accelerator with copies that arrive when the event recorded after them is reached."""

    def __init__(self) -> None:
        self._in_flight: list[Callable[[], Any]] = []
        self.transfers = self.events = 0

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        self.transfers += 1
        host, copy = torch.full_like(tensor, torch.nan), tensor.clone()
        self._in_flight.append(lambda: host.copy_(copy))
        return host

    def record_event(self, device: torch.device) -> Device:
        self.events += 1
        event = Device()
        event._in_flight, self._in_flight = self._in_flight, []
        return event

    def synchronize(self) -> None:
        for arrive in self._in_flight:
            arrive()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Has every tensor captured as one of an accelerator."""
    fake = Device()
    for module in (adapter, staging_buffers, tensors):
        monkeypatch.setattr(module, "on_host", lambda tensor: False, raising=False)
        monkeypatch.setattr(module, "to_host", fake.to_host, raising=False)
        monkeypatch.setattr(module, "record_event", fake.record_event, raising=False)
    return fake


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


@pytest.mark.parametrize("raw", [False, True], ids=["reductions", "raw"])
def test_parameters_and_gradients_are_transferred_together(
    tmp_path: Path, device: Device, raw: bool
) -> None:
    torch.manual_seed(0)
    large = nn.Linear(200, 200)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 200), large)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(
        tmp_path, save_config=SaveConfig(save_interval=1),
        reduction_config=ReductionConfig(["min", "mean"], save_raw_tensor=raw),
        include_collections=["weights", "biases", "gradients"],
    )  # fmt: skip
    hook.register_module(model)
    expected: dict[tuple[str, int], np.ndarray[Any, Any]] = {}
    for step in range(4):
        for name, parameter in model.named_parameters():
            expected[f"Sequential_{name}", step] = parameter.detach().numpy().copy()
        optimizer.zero_grad()
        model(torch.randn(5, 4)).square().mean().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            expected[f"gradient/Sequential_{name}", step] = parameter.grad.numpy().copy()
        optimizer.step()
        # What is in flight must be a copy.
        hook.flush()
    hook.close()
    trial = create_trial(str(tmp_path))
    assert {*trial.tensor_names()} == {name for name, _ in expected}
    for (name, step), value in expected.items():
        tensor = trial.tensor(name)
        wide = value.astype(np.float64)
        assert tensor.reduction_value(step, "min") == wide.min()
        assert tensor.reduction_value(step, "mean") == pytest.approx(wide.mean(), rel=1e-6)
        if raw:
            np.testing.assert_array_equal(tensor.value(step), value)
    # A buffer each for parameters and gradients; the reductions of the large weight and of its
    # gradient together, and the values of each.
    assert device.transfers == 4 * (5 if raw else 3)
