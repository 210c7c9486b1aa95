"""What the callbacks for other people's trainers have in common."""

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


class WatchedTraining:
    """A hook on the model of a trainer, and what the trainer logs.

    Args:
        hook: the hook, or where its run goes.
        options: the other arguments of the hook, when it is made here.

    Attributes:
        hook: the hook.
    """

    def __init__(self, hook: Hook | str | os.PathLike[str], options: Mapping[str, Any]) -> None:
        if isinstance(hook, Hook) and options:
            raise SMDebugTypeError(
                f"options must be given to the hook itself, got a hook and {', '.join(options)}"
            )
        if not isinstance(hook, Hook | str | os.PathLike):
            raise SMDebugTypeError(
                f"hook must be a Hook, a directory or a URL, got {validation.short_repr(hook)}"
            )
        self.hook = hook if isinstance(hook, Hook) else Hook(hook, **options)
        self._losses: BackwardLosses | None = None
        self._handle: Handle | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Some trainers send their callbacks to other processes, where the hook saves nothing.
        return {"hook": self.hook, "_losses": None, "_handle": None}

    def begin(self, module: torch.nn.Module, begins_steps: bool = True) -> None:
        """Watches a model, and what is called backward on; a second time nothing happens."""
        if self.hook.closed:
            return
        if module not in self.hook.module_set:
            self._handle = self.hook.register_module(
                # Who begins steps knows their modes.
                module,
                begins_steps=begins_steps,
                follow_training=begins_steps,
            )
        if self._losses is None:
            self._losses = BackwardLosses(lambda: self.hook)

    def log(self, numbers: Mapping[str, Any]) -> None:
        """Saves what a trainer logs, as scalars."""
        if self.hook.closed:
            return
        for name, value in numbers.items():
            if getattr(value, "numel", lambda: 1)() == 1 and not isinstance(value, str):
                self.hook.save_scalar(name, value)

    def end(self) -> None:
        """Publishes what was saved; the model and backward are left as they were found."""
        if self._losses is not None:
            self._losses.remove()
            self._losses = None
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        if not self.hook.closed:
            self.hook.flush()
