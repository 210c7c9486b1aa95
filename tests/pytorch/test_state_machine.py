"""The public API of the PyTorch hook, called in any order, against a plain model."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.hook.hook_machine import Array, HookMachine, Observed
from torch import nn

import smdebug.pytorch as smd

if TYPE_CHECKING:
    from pathlib import Path

FULL = os.environ.get("TORNASOLE_FAULTS") == "full"


class BrokenStep(Exception):
    """Raised in the middle of a forward pass."""


class Fragile(nn.Module):
    """Returns its input, or raises."""

    broken = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.broken:
            raise BrokenStep
        return x


class Net:
    """Two linear layers and a loss, in PyTorch and, independently, in float64 numpy.

    All numbers are small whole ones: both compute them exactly.

    Args:
        name: what the hook calls the module.
        prefix: what the names of its layers begin with.
    """

    def __init__(self, name: str, prefix: str) -> None:
        self.name, self._prefix = name, prefix
        self.module = nn.Sequential(nn.Linear(2, 3), Fragile(), nn.Linear(3, 1))
        self._values: dict[str, Array] = {}
        self.set_weights(0)

    def set_weights(self, seed: int) -> None:
        """Overwrite all parameters in place, as an optimizer does."""
        self.module.zero_grad()
        with torch.no_grad():
            for path, parameter in self.module.named_parameters():
                values = (np.arange(parameter.numel()) * 3 + seed) % 7 - 3.0
                self._values[path] = values.reshape(parameter.shape)
                parameter.copy_(torch.from_numpy(self._values[path]))

    def weights(self) -> list[Observed]:
        """Return the parameters."""
        return [(f"{self.name}_{path}", value) for path, value in self._values.items()]

    def outputs(self, x: Array, target: Array, broken: bool) -> list[Observed]:
        """Return what layers and the loss take and return, up to the layer that raises."""
        hidden = x @ self._values["0.weight"].T + self._values["0.bias"]
        result = hidden @ self._values["2.weight"].T + self._values["2.bias"]
        prefix = self._prefix
        found = [
            (f"{self.name}_input_0", x), (f"{prefix}0_input_0", x),
            (f"{prefix}0_output_0", hidden), (f"{prefix}1_input_0", hidden),
        ]  # fmt: skip
        if not broken:
            found += [
                (f"{prefix}1_output_0", hidden), (f"{prefix}2_input_0", hidden),
                (f"{prefix}2_output_0", result), (f"{self.name}_output_0", result),
                ("MSELoss_input_0", result), ("MSELoss_input_1", target),
                ("MSELoss_output_0", np.mean(np.square(result - target))),
            ]  # fmt: skip
        return found

    def gradients(self, x: Array, target: Array) -> list[Observed]:
        """Return the gradients of the loss."""
        hidden = x @ self._values["0.weight"].T + self._values["0.bias"]
        result = hidden @ self._values["2.weight"].T + self._values["2.bias"]
        outer = 2 * (result - target) / result.size
        inner = outer @ self._values["2.weight"]
        found = {
            "0.weight": inner.T @ x, "0.bias": inner.sum(0),
            "2.weight": outer.T @ hidden, "2.bias": outer.sum(0),
        }  # fmt: skip
        return [(f"gradient/{self.name}_{path}", value) for path, value in found.items()]


class TorchDriver:
    """A training loop over one or two small models."""

    regexes: tuple[str, ...] = (
        "2_output",
        "^0_input|Sequential_1_0_input",
        "gradient",
        "MSELoss",
        "bias",
    )
    when_nan: tuple[str, ...] = ("MSELoss_output", "^gradient", "1_input")
    separate_backward = True

    def __init__(self) -> None:
        self._nets: list[Net] = []
        self._last: tuple[Net, Array, Array, torch.Tensor] | None = None

    def make_hook(self, out_dir: str, **options: Any) -> Any:
        hook = smd.Hook(out_dir, **options)
        self._nets = [Net("Sequential", "")]
        self._loss = nn.MSELoss()
        hook.register_module(self._nets[0].module)
        hook.register_loss(self._loss)
        self._last = None
        return hook

    def add_module(self, hook: Any) -> None:
        self._nets.append(Net("Sequential_1", "Sequential_1_"))
        hook.register_module(self._nets[1].module)

    def forward(self, hook: Any, module: int, seed: int, nan: bool, fail: bool) -> list[Observed]:
        net, fragile = self._nets[module], self._nets[module].module[1]
        for each in self._nets:
            each.set_weights(seed)
        x = ((np.arange(4.0) + seed) % 5 - 2).reshape(2, 2)
        target = ((np.arange(2.0) + seed) % 3).reshape(2, 1)
        if nan:
            # At odd steps the outputs are finite, and only the loss is not.
            (target if seed % 2 else x)[0, 0] = math.nan
        weights = [each for net in self._nets for each in net.weights()]
        batch = torch.from_numpy(x).float()
        self._last = None
        if fail:
            fragile.broken = True
            with pytest.raises(BrokenStep):
                net.module(batch)
            fragile.broken = False
        else:
            loss = self._loss(net.module(batch), torch.from_numpy(target).float())
            self._last = net, x, target, loss
        return in_float32([*weights, *net.outputs(x, target, fail)])

    def backward(self, hook: Any) -> list[Observed]:
        assert self._last is not None
        net, x, target, loss = self._last
        loss.backward(retain_graph=True)
        return in_float32(net.gradients(x, target))

    def tensor(self, array: Array) -> Any:
        return torch.from_numpy(array.copy())


def in_float32(observed: list[Observed]) -> list[Observed]:
    """Round to the type of the model: exact for small whole numbers."""
    return [(name, np.asarray(array, np.float32)) for name, array in observed]


def test_any_order_of_calls_matches_the_model(tmp_path: Path) -> None:
    class Machine(HookMachine):
        driver = TorchDriver()
        folder = tmp_path

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=5_000 if FULL else 200,
            stateful_step_count=25,
            deadline=None,
            # One at a time: shrinking a sequence takes a minute.
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
