"""The contract of adapters, for PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import smdebug.pytorch as smd
from smdebug.testing import AdapterContract, Trained

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smdebug.mode_keys import ModeKeys


class TestHook(AdapterContract):
    tensor = "Sequential_0.weight"

    def make_hook(self, out_dir: str, **options: Any) -> smd.Hook:
        return smd.Hook(out_dir, **options)

    def train(
        self, hook: Any, modes: Sequence[ModeKeys], after_step: Callable[[int], object]
    ) -> Trained:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 2))
        loss_function = nn.MSELoss()
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        if hook is not None:
            hook.register_module(model)
            hook.register_loss(loss_function)
        tensors = []
        for step, mode in enumerate(modes):
            if hook is not None:
                hook.set_mode(mode)
            training = mode is smd.modes.TRAIN
            model.train(training)
            seen = {"Sequential_0.weight": model[0].weight.detach().clone()}
            output = model(torch.randn(8, 4))
            loss = loss_function(output, torch.randn(8, 2))
            seen |= {"Sequential_output_0": output.detach(), "MSELoss_output_0": loss.detach()}
            if training:
                optimizer.zero_grad()
                loss.backward()
                seen["gradient/Sequential_0.weight"] = model[0].weight.grad.clone()
                optimizer.step()
            tensors.append({name: each.numpy() for name, each in seen.items()})
            after_step(step)
        parameters = [each.detach().numpy() for each in model.parameters()]
        return Trained(tensors, parameters, _attached(model, loss_function))


def _attached(*modules: nn.Module) -> list[str]:
    """What is attached to modules and their parameters."""
    found = []
    for module in (part for each in modules for part in each.modules()):
        found += [name for name, value in vars(module).items() if "hooks" in name and value]
        found += [name for name in ("forward", "__call__") if name in vars(module)]
        for parameter in module.parameters(recurse=False):
            found += [str(parameter._backward_hooks)] if parameter._backward_hooks else []
            found += ["accumulate"] if parameter._post_accumulate_grad_hooks else []
    return found
