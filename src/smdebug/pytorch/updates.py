"""Gradients as an optimizer is about to use them: the last moment to keep bad ones out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from smdebug.pytorch.naming import GRADIENT_PREFIX
from smdebug.storage.findings import Finding

if TYPE_CHECKING:
    from smdebug.pytorch.hook import Hook


class Updates:
    """Looks at the gradients of registered parameters before every step of an optimizer.

    That is one pass over the gradients, and on an accelerator one wait for it: whether to go on
    cannot be known otherwise. Gradients that a `GradScaler` throws away never get here.

    Args:
        hook: stopped when a gradient is not finite.

    Raises:
        SMDebugValueError: no rule of the hook is about non-finite values.
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        assert hook._rules is not None
        self._rule = hook._rules.before_update_rule()
        self._handle = register_optimizer_step_pre_hook(self._before_step)

    def remove(self) -> None:
        """Lets optimizers be."""
        self._handle.remove()

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        hook = self._hook
        if hook._forked or hook.closed:
            return
        known = {
            id(parameter): name
            for registration in hook._registrations
            for name, parameter in registration.parameters()
        }
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

    def _stop(self, found: list[tuple[str, float]]) -> None:
        # Backward begins with the last layer: of those that are bad it is the first to be so.
        (name, value), bad = found[-1], len(found)
        hook, step = self._hook, self._hook._steps.current()
        tensor = f"{GRADIENT_PREFIX}{name}"
        kind = "NaN" if math.isnan(value) else "an infinite value"
        others = "" if bad == 1 else f" and {bad - 1} more"
        message = (
            f"{tensor}{others} held {kind} when the optimizer was about to use it; the weights "
            "were not updated"
        )
        hook._stop_now(
            Finding(
                self._rule, step.number, message, tensor, value, None, step.mode, step.mode_step,
                hook.worker,
            )
        )  # fmt: skip


def _sum(gradient: torch.Tensor) -> torch.Tensor:
    """The sum of a gradient, where the gradient is: not finite if one of its numbers is not."""
    dense = gradient.coalesce().values() if gradient.is_sparse else gradient
    found = dense.detach().sum()
    # FSDP: all processes must come to the same answer, or some would wait for the others.
    whole: torch.Tensor = found.full_tensor() if hasattr(found, "full_tensor") else found
    return whole


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
