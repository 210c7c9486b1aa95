"""Shared part of the callbacks for trainers of other libraries."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from smdebug.config import validation
from smdebug.exceptions import SMDebugTypeError
from smdebug.pytorch.backward_losses import BackwardLosses
from smdebug.pytorch.hook import Hook

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from smdebug.hook.handles import Handle


class TrainerHook:
    """A hook on the model of a trainer and on the metrics that the trainer logs.

    Args:
        hook: the hook, or the `out_dir` of a new one.
        options: the other arguments of a new hook.

    Attributes:
        hook: the hook.
    """

    def __init__(self, hook: Hook | str | os.PathLike[str], options: Mapping[str, Any]) -> None:
        if isinstance(hook, Hook) and options:
            raise SMDebugTypeError(
                f"Cannot change {', '.join(options)} of an existing hook. Pass the options to the "
                "hook itself, or a directory instead of the hook"
            )
        if not isinstance(hook, Hook | str | os.PathLike):
            raise SMDebugTypeError(
                f"hook must be a Hook, a directory or a URL, got {validation.short_repr(hook)}"
            )
        self.hook = hook if isinstance(hook, Hook) else Hook(hook, **options)
        self._losses: BackwardLosses | None = None
        self._handle: Handle | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Some trainers pickle their callbacks for other processes, where the hook saves nothing.
        return {"hook": self.hook, "_losses": None, "_handle": None}

    def begin(self, module: torch.nn.Module, begins_steps: bool = True) -> None:
        """Register a model and the losses of its backward passes; a second call does nothing."""
        if self.hook.closed:
            return
        if module not in self.hook.module_set:
            self._handle = self.hook.register_module(
                module,
                # A trainer that begins the steps also sets their modes.
                begins_steps=begins_steps,
                follow_training=begins_steps,
            )
        if self._losses is None:
            self._losses = BackwardLosses(lambda: self.hook)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Save the metrics that a trainer logs, as scalars."""
        if self.hook.closed:
            return
        for name, value in metrics.items():
            if getattr(value, "numel", lambda: 1)() == 1 and not isinstance(value, str):
                self.hook.save_scalar(name, value)

    def end(self) -> None:
        """Publish all steps, and remove everything from the model and from PyTorch."""
        if self._losses is not None:
            self._losses.remove()
            self._losses = None
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        if not self.hook.closed:
            self.hook.flush()
