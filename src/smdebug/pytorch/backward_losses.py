"""Losses that no module computes: what training calls `backward` on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from smdebug.hook.patch import patch
from smdebug.pytorch.context import in_backward, is_traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.pytorch.hook import Hook

NAME = "loss"
# Of a step; more of them come only when no steps are seen any more.
_MOST_LOSSES = 16


class BackwardLosses:
    """Saves the number that a backward begins with, as `loss_output_<i>`.

    Where a registered loss was computed in the same step there is nothing to add. With a
    `GradScaler` it is the loss before it is scaled.

    Args:
        hook: returns the hook to save with, or None.
    """

    def __init__(self, hook: Callable[[], Hook | None]) -> None:
        self._hook = hook
        # The last step at which a loss was scaled, and saved before that.
        self._scaled: int | None = None
        self._counted_at: int | None = None
        self._count = 0
        self._patches = [
            patch(torch.autograd, "backward", self._telling_backward),
            patch(torch.amp.GradScaler, "scale", self._telling_scale),
        ]

    def remove(self) -> None:
        """Leaves backward as it was found."""
        for handle in self._patches:
            handle.remove()
        # Another library that has wrapped a replacement goes on calling it.
        self._hook = lambda: None

    def _telling_backward(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        def telling(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            hook = self._live_hook()
            if hook is not None and self._scaled != hook.step:
                self._save(hook, tensors)
            return backward(tensors, *args, **kwargs)

        return telling

    def _telling_scale(self, scale: Callable[..., Any]) -> Callable[..., Any]:
        def telling(scaler: Any, outputs: Any) -> Any:
            hook = self._live_hook()
            if hook is not None and scaler.is_enabled():
                self._save(hook, outputs)
                self._scaled = hook.step
            return scale(scaler, outputs)

        return telling

    def _live_hook(self) -> Hook | None:
        hook = self._hook()
        # Not by the number of the step: a job that goes on has one before it begins any.
        if hook is None or hook.closed or not hook._steps.begun or in_backward() or is_traced():
            return None
        return None if hook.last_loss_step == hook.step else hook

    def _save(self, hook: Hook, tensors: Any) -> None:
        if self._counted_at != hook.step:
            self._counted_at, self._count = hook.step, 0
        # What is neither could be a generator, which can be asked only once.
        for tensor in tensors if isinstance(tensors, list | tuple) else (tensors,):
            few = self._count < _MOST_LOSSES
            if few and isinstance(tensor, torch.Tensor) and tensor.numel() == 1:
                self._count += 1
                hook.record_tensor_value(NAME, tensor.detach())
