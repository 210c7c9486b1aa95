"""A check of gradients right before an optimizer uses them: `before_update=True`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from smdebug.hook.naming import GRADIENT_PREFIX
from smdebug.storage.findings import Finding

if TYPE_CHECKING:
    from smdebug.hook.pipeline import Pipeline
    from smdebug.pytorch.adapter import PytorchAdapter
    from smdebug.pytorch.registration import Registration


class OptimizerGuard:
    """Checks the gradients of registered parameters before every step of an optimizer.

    That is one pass over the gradients, and on an accelerator one synchronization: whether to
    continue cannot be known otherwise. Where the optimizer gets a closure, the gradients that the
    closure computed are checked. Gradients that a `GradScaler` skips are ignored.

    Args:
        pipeline: stopped when a gradient is not finite.
        adapter: has the registered modules.
    """

    def __init__(self, pipeline: Pipeline, adapter: PytorchAdapter) -> None:
        self._pipeline = pipeline
        self._adapter = adapter
        assert pipeline.rule_set is not None
        self._rule = pipeline.rule_set.before_update_rule()
        self._versions: list[tuple[Registration, int]] = []
        self._known: dict[int, str] = {}
        # A step of an optimizer may be compiled, and this cannot be.
        before_step = torch.compiler.disable(self._before_step)
        self._handle = register_optimizer_step_pre_hook(before_step)

    def remove(self) -> None:
        """Check no optimizer anymore."""
        self._handle.remove()

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        """Check the gradients, or have them checked when the closure has computed them."""
        if not self._pipeline.active or _is_scaled(optimizer, kwargs):
            return None
        # The optimizer itself is the first argument.
        given = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(given):
            self._check(optimizer)
            return None

        def closure() -> Any:
            result = given()
            if self._pipeline.active:
                self._check(optimizer)
            return result

        if "closure" in kwargs:
            return args, {**kwargs, "closure": closure}
        return (args[0], closure, *args[2:]), kwargs

    def _check(self, optimizer: torch.optim.Optimizer) -> None:
        known = self._names()
        named = [
            (known[id(parameter)], parameter.grad)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None and id(parameter) in known
        ]
        bad: list[tuple[str, float]] = []
        with self._pipeline.guarded:
            sums = [_sum(gradient) for _, gradient in named]
            if sums and not _all_finite(sums):
                numbers = [(name, _worst(gradient)) for name, gradient in named]
                bad = [pair for pair in numbers if not math.isfinite(pair[1])]
        if bad:
            self._stop(bad)

    def _names(self) -> dict[int, str]:
        """Return the names of all registered parameters, by identity."""
        registrations = list(self._adapter.registrations)
        versions = [(each, each.version) for each in registrations]
        if versions != self._versions:
            self._versions = versions
            self._known = {
                id(parameter): name
                for registration in registrations
                for name, parameter in registration.parameters()
            }
        return self._known

    def _stop(self, found: list[tuple[str, float]]) -> None:
        # The backward pass begins with the last layer: it is the first that was non-finite.
        (name, value), bad = found[-1], len(found)
        step = self._pipeline.steps.current()
        tensor = f"{GRADIENT_PREFIX}{name}"
        kind = "NaN" if math.isnan(value) else "an infinite value"
        others = "" if bad == 1 else f" and {bad - 1} more"
        message = (
            f"{tensor}{others} held {kind} when the optimizer was about to use it; the weights "
            "were not updated with it"
        )
        self._pipeline.stop_now(
            Finding(
                self._rule, step.number, message, tensor, value, None, step.mode, step.mode_step,
                self._adapter.worker().name,
            )
        )  # fmt: skip


def _is_scaled(optimizer: torch.optim.Optimizer, kwargs: Any) -> bool:
    """Return whether a `GradScaler` leaves it to the optimizer to skip non-finite gradients.

    Fused optimizers do that themselves: their step is called whatever the gradients hold.
    """
    return getattr(optimizer, "found_inf", None) is not None or "grad_scaler" in kwargs


def _sum(gradient: torch.Tensor) -> torch.Tensor:
    """Return the sum of a gradient, on its device: not finite if one of its elements is not."""
    dense = gradient.coalesce().values() if gradient.is_sparse else gradient
    found = dense.detach().sum()
    # FSDP: all processes must get the same answer, or some would wait for the others.
    whole: torch.Tensor = found.full_tensor() if hasattr(found, "full_tensor") else found
    # Both parts of a complex number count.
    return whole.abs() if whole.is_complex() else whole


def _worst(gradient: torch.Tensor) -> float:
    """Return NaN or infinity if a gradient has one; 0 otherwise: its sum may overflow."""
    dense = gradient.coalesce().values() if gradient.is_sparse else gradient
    for test, value in ((torch.isnan, math.nan), (torch.isinf, math.inf)):
        found = test(dense.detach()).sum()
        whole = found.full_tensor() if hasattr(found, "full_tensor") else found
        if bool(whole):
            return value
    return 0.0


def _all_finite(numbers: list[torch.Tensor]) -> bool:
    """Return whether all are finite, with one synchronization for each device."""
    devices: dict[torch.device, list[torch.Tensor]] = {}
    for number in numbers:
        devices.setdefault(number.device, []).append(number.float())
    return all(bool(torch.isfinite(torch.stack(each)).all()) for each in devices.values())
