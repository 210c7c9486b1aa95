"""Losses that modules compute: their inputs and outputs, named after their classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.hook.handles import Handle
from smdebug.hook.rules.rule_layers import include_loss
from smdebug.pytorch.context import in_backward
from smdebug.pytorch.registration import Callback, HookSet

if TYPE_CHECKING:
    import torch

    from smdebug.config.log import WarnOnce
    from smdebug.hook.pipeline import Pipeline
    from smdebug.pytorch.activations import Activations
    from smdebug.pytorch.registration import Registration

# The key of warnings that no step has begun; one of them is enough.
MISSING_STEPS = "missing steps"


class Losses:
    """Watches losses.

    Args:
        pipeline: the pipeline of the hook.
        activations: names and offers their tensors.
        registrations: the registered modules; the adapter adds to them.
        warnings: logs warnings once.

    Attributes:
        registered: the registered losses.
        last_step: the last step at which a module computed a loss; None before.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        activations: Activations,
        registrations: dict[Registration, Handle],
        warnings: WarnOnce,
    ) -> None:
        self._pipeline = pipeline
        self._activations = activations
        self._registrations = registrations
        self._warnings = warnings
        self.registered: dict[torch.nn.Module, Handle] = {}
        self.last_step: int | None = None
        self._known: set[str] = set()

    def register(self, loss: torch.nn.Module) -> Handle:
        """Watch a loss; see `Hook.register_loss`."""
        if loss in self.registered:
            return self.registered[loss]
        name = type(loss).__name__
        hooks = HookSet()

        def after(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self._capture(name, args, kwargs, output)

        def remove() -> None:
            hooks.remove()
            self.registered.pop(loss, None)

        with self._pipeline.guarded.lock:
            if not self._pipeline.active:
                # Nothing would remove it again.
                return Handle(lambda: None)
            hooks.add(loss.register_forward_hook(Callback(after, takes=4), with_kwargs=True))
            self._add_to_rules(name)
            self.registered[loss] = Handle(remove)
            return self.registered[loss]

    def computed(self, name: str, args: Any, kwargs: Any, output: Any) -> None:
        """Capture the inputs and outputs of a loss that is not registered."""
        self._add_to_rules(name)
        self._capture(name, args, kwargs, output)

    def _add_to_rules(self, name: str) -> None:
        """Add what rules need of a loss to their collections."""
        if name not in self._known:
            self._known.add(name)
            for each in self._pipeline.collections.of_rules:
                include_loss(each, name)

    def _capture(self, name: str, args: Any, kwargs: Any, output: Any) -> None:
        pipeline = self._pipeline
        if not pipeline.steps.begun and self._registrations and pipeline.active:
            self._warnings.warning(
                MISSING_STEPS,
                "%s was computed, but no forward pass of the registered %s was seen, so nothing is "
                "saved; register the object that training calls (with torch.compile: the compiled "
                "module, after compiling)",
                name, ", ".join(each.name for each in self._registrations),
            )  # fmt: skip
        # One that activation checkpointing computes again is of the same step.
        self.last_step = pipeline.steps.step
        current = pipeline.current
        if current is not None and current.plan is not None and not in_backward():
            with pipeline.guarded:
                if self._activations.may_be_relevant(current.plan, name, "input"):
                    self._activations.offer(name, "input", args, kwargs)
                self._activations.offer(name, "output", output)
