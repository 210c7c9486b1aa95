"""Losses that no module computes: the tensors that `backward` is called on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from smdebug.hook.patch import patch
from smdebug.pytorch.context import in_backward, is_traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.pytorch.hook import Hook

NAME = "loss"
# Per step; a script that exceeds it no longer calls the registered model.
_MAX_LOSSES = 16


class BackwardLosses:
    """Saves the scalar that a backward pass starts from, as `loss_output_<i>`.

    Nothing is saved at a step in which a registered loss was computed. With a `GradScaler` the loss
    is saved before it is scaled.

    Args:
        hook: returns the hook to save with, or None.
    """

    def __init__(self, hook: Callable[[], Hook | None]) -> None:
        self._hook = hook
        # The last step whose loss was saved before it was scaled.
        self._scaled_step: int | None = None
        self._counted_step: int | None = None
        self._count = 0
        self._patches = [
            patch(torch.autograd, "backward", self._wrap_backward),
            patch(torch.amp.GradScaler, "scale", self._wrap_scale),
        ]

    def remove(self) -> None:
        """Restore the functions of PyTorch."""
        for handle in self._patches:
            handle.remove()
        # Another library that has wrapped a replacement still calls it.
        self._hook = lambda: None

    def _wrap_backward(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        def backward_pass(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            hook = self._active_hook()
            if hook is not None and self._scaled_step != hook.step:
                self._save(hook, tensors)
            return backward(tensors, *args, **kwargs)

        return backward_pass

    def _wrap_scale(self, scale: Callable[..., Any]) -> Callable[..., Any]:
        def scale_loss(scaler: Any, outputs: Any) -> Any:
            hook = self._active_hook()
            if hook is not None and scaler.is_enabled():
                self._save(hook, outputs)
                self._scaled_step = hook.step
            return scale(scaler, outputs)

        return scale_loss

    def _active_hook(self) -> Hook | None:
        hook = self._hook()
        # The step number would not do: a resumed job has one before it begins a step.
        if hook is None or hook.closed or not hook.has_begun or in_backward() or is_traced():
            return None
        return None if hook.last_loss_step == hook.step else hook

    def _save(self, hook: Hook, tensors: Any) -> None:
        if self._counted_step != hook.step:
            self._counted_step, self._count = hook.step, 0
        # A generator is not iterated over: backward has to.
        for tensor in tensors if isinstance(tensors, list | tuple) else (tensors,):
            is_scalar = isinstance(tensor, torch.Tensor) and tensor.numel() == 1
            if is_scalar and self._count < _MAX_LOSSES:
                self._count += 1
                hook.record_tensor_value(NAME, tensor.detach())
