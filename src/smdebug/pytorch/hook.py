"""The hook for PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn.modules.loss import _Loss

from smdebug.config import validation
from smdebug.exceptions import SMDebugTypeError
from smdebug.hook.arguments import inherit_arguments
from smdebug.hook.hook import BaseHook
from smdebug.pytorch.adapter import PytorchAdapter

if TYPE_CHECKING:
    from smdebug.hook.handles import Handle
    from smdebug.pytorch.collection import Collection


@inherit_arguments
class Hook(BaseHook):
    """Saves tensors of a PyTorch training job.

    Every forward pass of a registered module is a step. At the steps that `save_config` names the
    hook saves what its collections hold: `weights` and `biases` (before they are updated),
    `gradients` (of that backward pass), `losses`, inputs and outputs of modules. `losses` is always
    saved.

    Example:
        >>> hook = Hook("/tmp/run", include_collections=["gradients"])  # doctest: +SKIP
        >>> hook.register_module(model)  # doctest: +SKIP
        >>> hook.register_loss(loss_function)  # doctest: +SKIP
    """

    adapter_class = PytorchAdapter
    _adapter: PytorchAdapter

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """Return a collection of this hook, created if it does not exist; see `BaseHook`."""
        return cast("Collection", super().get_collection(name, create))

    def register_module(
        self,
        module: torch.nn.Module,
        *,
        begins_steps: bool = True,
        follow_training: bool = False,
    ) -> Handle:
        """Register a module: each of its forward passes is a step.

        Args:
            module: the outermost module that training calls. Of a module that `torch.compile` made,
                register the compiled one: compile first, then register.
            begins_steps: False for a further module of the same training loop: its forward passes
                belong to the step that another one began.
            follow_training: set the mode to TRAIN or EVAL, as `module.training` says, when a step
                begins.

        Returns:
            A handle that removes the registration; also a context manager.

        Raises:
            SMDebugTypeError: it is not a module.
            SMDebugError: it, or a part of it, is already registered.

        Example:
            >>> handle = hook.register_module(model)  # doctest: +SKIP
        """
        _require_module("module", module)
        validation.boolean("begins_steps", begins_steps)
        validation.boolean("follow_training", follow_training)
        return self._adapter.register_module(module, begins_steps, follow_training)

    def register_loss(self, loss_module: torch.nn.Module) -> Handle:
        """Register a loss: its inputs and outputs are named after its class.

        Args:
            loss_module: a module that computes a loss; it may be one of several, also of one class.

        Returns:
            A handle that removes the registration.

        Raises:
            SMDebugTypeError: it is not a module.

        Example:
            >>> hook.register_loss(torch.nn.CrossEntropyLoss())  # doctest: +SKIP
        """
        if not isinstance(loss_module, torch.nn.Module):
            raise SMDebugTypeError(
                f"loss_module must be a torch.nn.Module, such as torch.nn.CrossEntropyLoss(), got "
                f"{validation.short_repr(loss_module)}; save the value of a loss function with "
                'hook.save_tensor("loss", loss, "losses")'
            )
        return self._adapter.losses.register(loss_module)

    def register_hook(self, module: torch.nn.Module) -> Handle:
        """Register a module, or a loss when it is one."""
        if isinstance(module, _Loss):
            return self.register_loss(module)
        return self.register_module(module)

    def begin_step(self, module: torch.nn.Module) -> None:
        """Begin a step where no forward pass of a registered module does.

        Args:
            module: one that was registered with `begins_steps=False`. Inputs and outputs of its
                parts are saved from now on until its own forward pass ends, if it is called at all.

        Raises:
            SMDebugError: the module is not registered.

        Example:
            >>> hook.register_module(model, begins_steps=False)  # doctest: +SKIP
            >>> hook.begin_step(model)  # doctest: +SKIP
        """
        self._adapter.begin_step(module)

    def loss_computed(
        self, loss_module: torch.nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        """Save inputs and outputs of a loss; for losses that exist for one call only.

        Args:
            loss_module: the loss, registered or not.
            args: the arguments of its forward pass.
            kwargs: its keyword arguments.
            output: its output.

        Example:
            >>> hook.loss_computed(loss, (output, labels), {}, value)  # doctest: +SKIP
        """
        self._adapter.losses.computed(type(loss_module).__name__, args, kwargs, output)

    def record_tensor_value(self, tensor_name: str, tensor_value: torch.Tensor) -> None:
        """Save a tensor as `<tensor_name>_output_<i>`, if a collection matches. Deprecated.

        `save_tensor` saves it under its own name, in the collections that are given.

        Example:
            >>> hook.record_tensor_value("loss", loss)  # doctest: +SKIP
        """
        if not isinstance(tensor_value, torch.Tensor):
            raise SMDebugTypeError(
                f"tensor_value must be a torch.Tensor, got {validation.short_repr(tensor_value)}"
            )
        validation.text("tensor_name", tensor_name)
        self._adapter.record_tensor(tensor_name, tensor_value)

    @property
    def has_registered_module(self) -> bool:
        """Whether a module is registered."""
        return bool(self._adapter.registrations)

    @property
    def has_registered_loss_module(self) -> bool:
        """Whether a loss is registered."""
        return bool(self._adapter.losses.registered)

    @property
    def module_set(self) -> set[torch.nn.Module]:
        """All registered modules with their parts."""
        return {part for each in self._adapter.registrations for part in each.modules.values()}

    @property
    def last_loss_step(self) -> int | None:
        """The last step at which a module computed a loss; None before."""
        return self._adapter.losses.last_step

    @property
    def has_begun(self) -> bool:
        """Whether a step has begun in this process."""
        return self._pipeline.steps.begun > 0


TornasoleHook = Hook


def _require_module(key: str, module: object) -> None:
    if not isinstance(module, torch.nn.Module):
        raise SMDebugTypeError(
            f"{key} must be a torch.nn.Module, got {validation.short_repr(module)} of type "
            f"{type(module).__name__}"
        )
