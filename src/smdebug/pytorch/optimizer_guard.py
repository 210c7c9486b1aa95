"""Gradients as an optimizer is about to use them: the last moment to keep bad ones out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from smdebug.hook.naming import GRADIENT_PREFIX
from smdebug.storage.findings import Finding

if TYPE_CHECKING:
    from smdebug.pytorch.hook import Hook
    from smdebug.pytorch.registration import Registration


class OptimizerGuard:
    """Looks at the gradients of registered parameters before every step of an optimizer.

    That is one pass over the gradients, and on an accelerator one wait for it: whether to go on
    cannot be known otherwise. Where the optimizer is given a closure, it is looked at what the
    closure has computed. Gradients that a `GradScaler` throws away are none of its business.

    Args:
        hook: stopped when a gradient is not finite.

    Raises:
        SMDebugValueError: no rule of the hook is about non-finite values.
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        assert hook._rules is not None
        self._rule = hook._rules.before_update_rule()
        self._mark: list[tuple[Registration, int]] = []
        self._known: dict[int, str] = {}
        # A step of an optimizer may be compiled, and this cannot be.
        before_step = torch.compiler.disable(self._before_step)
        self._handle = register_optimizer_step_pre_hook(before_step)

    def remove(self) -> None:
        """Lets optimizers be."""
        self._handle.remove()

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        """Looks at the gradients, or has it done when the closure of the step has made them."""
        if self._hook._forked or self._hook.closed or _is_scaled(optimizer, kwargs):
            return None
        # The optimizer itself is the first argument.
        given = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(given):
            self._look(optimizer)
            return None

        def closure() -> Any:
            result = given()
            if not self._hook.closed:
                self._look(optimizer)
            return result

        if "closure" in kwargs:
            return args, {**kwargs, "closure": closure}
        return (args[0], closure, *args[2:]), kwargs

    def _look(self, optimizer: torch.optim.Optimizer) -> None:
        hook, known = self._hook, self._names()
        named = [
            (known[id(parameter)], parameter.grad)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None and id(parameter) in known
        ]
        bad: list[tuple[str, float]] = []
        with hook._entered():
            sums = [_sum(gradient) for _, gradient in named]
            if sums and not _all_finite(sums):
                numbers = [(name, _worst(gradient)) for name, gradient in named]
                bad = [pair for pair in numbers if not math.isfinite(pair[1])]
        if bad:
            self._stop(bad)

    def _names(self) -> dict[int, str]:
        """The names of all registered parameters, by identity; found out when they change."""
        registrations = list(self._hook._registrations)
        mark = [(each, each.version) for each in registrations]
        if mark != self._mark:
            self._mark = mark
            self._known = {
                id(parameter): name
                for registration in registrations
                for name, parameter in registration.parameters()
            }
        return self._known

    def _stop(self, found: list[tuple[str, float]]) -> None:
        # Backward begins with the last layer: of those that are bad it is the first to be so.
        (name, value), bad = found[-1], len(found)
        hook, step = self._hook, self._hook._steps.current()
        tensor = f"{GRADIENT_PREFIX}{name}"
        kind = "NaN" if math.isnan(value) else "an infinite value"
        others = "" if bad == 1 else f" and {bad - 1} more"
        message = (
            f"{tensor}{others} held {kind} when the optimizer was about to use it; the weights "
            "were not updated with it"
        )
        hook._stop_now(
            Finding(
                self._rule, step.number, message, tensor, value, None, step.mode, step.mode_step,
                hook.worker,
            )
        )  # fmt: skip


def _is_scaled(optimizer: torch.optim.Optimizer, kwargs: Any) -> bool:
    """Whether a `GradScaler` left it to the optimizer to pass over gradients that are not finite.

    Fused optimizers do that themselves: their step is called whatever the gradients hold.
    """
    return getattr(optimizer, "found_inf", None) is not None or "grad_scaler" in kwargs


def _sum(gradient: torch.Tensor) -> torch.Tensor:
    """The sum of a gradient, where the gradient is: not finite if one of its numbers is not."""
    dense = gradient.coalesce().values() if gradient.is_sparse else gradient
    found = dense.detach().sum()
    # FSDP: all processes must come to the same answer, or some would wait for the others.
    whole: torch.Tensor = found.full_tensor() if hasattr(found, "full_tensor") else found
    # Both parts of a complex number count.
    return whole.abs() if whole.is_complex() else whole


def _worst(gradient: torch.Tensor) -> float:
    """NaN or an infinite number if a gradient has one; 0 otherwise: its sum may overflow."""
    dense = gradient.coalesce().values() if gradient.is_sparse else gradient
    for test, value in ((torch.isnan, math.nan), (torch.isinf, math.inf)):
        found = test(dense.detach()).sum()
        whole = found.full_tensor() if hasattr(found, "full_tensor") else found
        if bool(whole):
            return value
    return 0.0


def _all_finite(numbers: list[torch.Tensor]) -> bool:
    """One answer, and so one wait, for each device."""
    devices: dict[torch.device, list[torch.Tensor]] = {}
    for number in numbers:
        devices.setdefault(number.device, []).append(number.float())
    return all(bool(torch.isfinite(torch.stack(each)).all()) for each in devices.values())
