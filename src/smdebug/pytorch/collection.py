"""Collections that also take modules and parameters of PyTorch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from smdebug.config.collection import Collection as BaseCollection
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Callable


class Collection(BaseCollection):
    """A named set of tensors; see `smdebug.Collection`.

    Modules and parameters have no names of their own: they are named when the module they are part
    of is registered, which may be later.

    Example:
        >>> collection = Collection("relu")
        >>> collection.add_module_tensors(torch.nn.ReLU())
        >>> collection.is_empty()
        False
    """

    # Set per instance on first use, so that the base class need not handle it.
    _parameters: tuple[torch.nn.Parameter, ...] = ()
    _modules: tuple[tuple[torch.nn.Module, bool, bool], ...] = ()

    def add(self, tensor_names: Any) -> None:
        """Add tensors: names, parameters (without their gradients), or modules.

        Args:
            tensor_names: a name, a parameter, a module (its parameters and its outputs), or lists
                of them.
        """
        if isinstance(tensor_names, torch.nn.Module):
            self._parameters += tuple(tensor_names.parameters())
            self.add_module_tensors(tensor_names)
        elif isinstance(tensor_names, torch.nn.Parameter):
            self._parameters += (tensor_names,)
        elif isinstance(tensor_names, torch.Tensor) or tensor_names is None:
            raise SMDebugTypeError(
                f"collection {self.name!r}: expected names, parameters or modules, got "
                f"{type(tensor_names).__name__}, which has no name; use hook.save_tensor to save "
                "a tensor of your own"
            )
        elif isinstance(tensor_names, list | tuple | set | frozenset):
            for each in tensor_names:
                self.add(each)
        else:
            super().add(tensor_names)

    def add_module_tensors(
        self, module: torch.nn.Module, inputs: bool = False, outputs: bool = True
    ) -> None:
        """Add the inputs or outputs of a module.

        Args:
            module: a module that is, or will be by the first step, part of a registered one.
            inputs: add its inputs.
            outputs: add its outputs.

        Raises:
            SMDebugTypeError: it is not a module.

        Example:
            >>> collection = Collection("attention")
            >>> collection.add_module_tensors(torch.nn.Linear(2, 2), inputs=True)
        """
        if not isinstance(module, torch.nn.Module):
            raise SMDebugTypeError(
                f"collection {self.name!r}: module must be a torch.nn.Module, got "
                f"{type(module).__name__}"
            )
        self._modules += ((module, bool(inputs), bool(outputs)),)

    def is_empty(self) -> bool:
        """Return whether the collection names no tensor at all."""
        return super().is_empty() and not self._parameters and not self._modules

    def resolve(
        self,
        parameter_names: Callable[[torch.nn.Parameter], list[str]],
        module_name: Callable[[torch.nn.Module], str | None],
    ) -> None:
        """Convert modules and parameters to names and regexes, now that they have names.

        Raises:
            SMDebugValueError: one of them is not part of a registered module.
        """
        for parameter in self._parameters:
            names = parameter_names(parameter)
            if not names:
                raise self._not_registered(f"a parameter of shape {tuple(parameter.shape)}")
            super().add(names)
        for module, inputs, outputs in self._modules:
            path = module_name(module)
            if path is None:
                raise self._not_registered(f"the module {type(module).__name__}")
            kinds = [kind for kind, wanted in (("input", inputs), ("output", outputs)) if wanted]
            regexes = [f"^{re.escape(path)}_{kind}_" for kind in kinds]
            self.include([regex for regex in regexes if regex not in self.include_regex])
        self._parameters, self._modules = (), ()

    def overlay(self, other: BaseCollection) -> None:
        """Add the regexes and names of another collection; its configurations win."""
        super().overlay(other)
        if isinstance(other, Collection):
            self._parameters += other._parameters
            self._modules += other._modules

    def _not_registered(self, what: str) -> SMDebugValueError:
        return SMDebugValueError(
            f"collection {self.name!r}: {what} is not part of a registered module; call "
            "hook.register_module (or register_loss) with the module it belongs to"
        )
