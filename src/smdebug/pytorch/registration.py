"""A registered module: its parts, their names, and the hooks on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from smdebug.config.names import unique_name
from smdebug.hook.handles import Callback as _Callback
from smdebug.hook.rules.rule_layers import MODEL
from smdebug.pytorch.context import is_traced
from smdebug.pytorch.naming import original_module, plain_path, root_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.utils.hooks import RemovableHandle

_parts = 0


def _count_part(module: torch.nn.Module, name: str, part: Any) -> None:
    global _parts
    _parts += 1


torch.nn.modules.module.register_module_parameter_registration_hook(_count_part)
torch.nn.modules.module.register_module_module_registration_hook(_count_part)


def registered_parts() -> int:
    """Return how many parameters and modules were ever added to modules, of any model."""
    return _parts


class Callback(_Callback):
    """A function among the hooks of a module.

    It does nothing while the module is traced or compiled, so that it breaks no graph.

    Args:
        function: called with what PyTorch passes to such a hook.
        takes: the number of those arguments. PyTorch looks up whether a hook takes keyword
            arguments when it calls it: one that another thread has just removed gets none.
    """

    def __init__(self, function: Callable[..., None], takes: int) -> None:
        super().__init__(function)
        self._takes = takes

    def __call__(self, *arguments: Any) -> None:
        if len(arguments) == self._takes and not is_traced():
            self._function(*arguments)


class Registration:
    """A registered module and the names of its parts.

    Args:
        module: the module, compiled or not.
        others: earlier registrations: no two share a name.

    Attributes:
        module: as the user passed it; its forward pass begins a step.
        name: its name.
        modules: its parts by path, the module itself under its name.
        version: changes whenever a part or a parameter was added, removed or replaced.
        calls: how many forward passes there were.
        in_place: whether it was compiled in place (`module.compile()`).
        lazy: whether some of its parameters are not initialized yet.
        begins_steps: whether its forward passes are steps, or belong to those of another module.
        follows_training: whether `module.training` sets the mode of its steps.
    """

    begins_steps = True
    follows_training = False

    def __init__(self, module: torch.nn.Module, others: Iterable[Registration] = ()) -> None:
        self.module = module
        self.name: str = unique_name(root_name(module), {other.name for other in others})
        # Only where the paths alone would be ambiguous.
        paths = {plain_path(path) for path, _ in original_module(module).named_modules()} - {""}
        known = {path for other in others for path in other.modules}
        self._prefix = f"{self.name}_" if paths & known else ""
        self.version = 0
        self.calls = 0
        self.lazy = False
        self.in_place = module._compiled_call_impl is not None
        self._shards: dict[str, torch.Tensor] = {}
        self._fingerprint: list[object] | None = None
        self.modules: dict[str, torch.nn.Module] = {}
        self._parameters: list[tuple[str, torch.Tensor]] = []
        self.refresh()

    @property
    def compiled(self) -> bool:
        """Whether any part of the module runs as a compiled graph."""
        parts = self.module.modules()
        return any("_orig_mod" in m._modules or m._compiled_call_impl is not None for m in parts)

    def kinds(self) -> list[tuple[str, str]]:
        """Return the name and the kind of each part: its class, or that it is the whole model."""
        return [
            (path, MODEL if path == self.name else type(module).__name__.lower())
            for path, module in self.modules.items()
        ]

    def refresh(self) -> bool:
        """Return whether parts or parameters were added, removed, replaced or changed type."""
        if self._fingerprint is not None and self._current_fingerprint() == self._fingerprint:
            return False
        self.version += 1
        root = original_module(self.module)
        self.modules = {}
        for path, module in root.named_modules():
            if "_orig_mod" not in module._modules:
                inner = plain_path(path)
                self.modules[self._prefix + inner if inner else self.name] = module
        self._parameters = [
            (f"{self.name}_{plain_path(path)}", parameter)
            for path, parameter in root.named_parameters(remove_duplicate=False)
        ]
        self.lazy = any(torch.nn.parameter.is_lazy(each) for _, each in self._parameters)
        self._fingerprint = self._current_fingerprint()
        return True

    def _current_fingerprint(self) -> list[object]:
        # Computed at every saving step: a few microseconds for a hundred parameters.
        marks: list[object] = []
        for module in self.modules.values():
            for name, part in module._modules.items():
                marks += (name, id(part))
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    marks += (name, id(parameter), parameter.dtype, parameter.device)
                    # A lazy one has no shape until its class changes.
                    kind: type = type(parameter)
                    lazy = kind is torch.nn.UninitializedParameter
                    marks.append(None if lazy else parameter.shape)
        return marks

    def parameters(self) -> list[tuple[str, torch.Tensor]]:
        """Return all parameters with their names, a tied one under each of its names.

        FSDP replaces its shards by the gathered parameters while a module runs; what this process
        keeps, and what is saved, are the shards.
        """
        found = []
        for name, parameter in self._parameters:
            if hasattr(parameter, "to_local"):
                self._shards[name] = parameter
            if torch.nn.parameter.is_lazy(parameter):
                continue
            found.append((name, self._shards.get(name, parameter)))
        return found


def around_forward(
    module: torch.nn.Module,
    begin: Callback,
    end: Callable[..., None],
    eagerly: Callable[[], bool],
) -> Callable[[], None]:
    """Have a callback called before every forward pass of a module; return what undoes it.

    Args:
        module: the module.
        begin: called with the module and the arguments of its forward pass.
        end: called with the module, the arguments and the output, where the module's own forward
            hooks cannot be: they would be inside the graph of a module compiled in place.
        eagerly: whether the forward pass that begins must not run as a compiled graph.
    """
    compiled: Any = module._compiled_call_impl
    if compiled is None:
        # Before all others: FSDP's own hook replaces the shards by gathered parameters.
        hooks = HookSet()
        hooks.add(module.register_forward_pre_hook(begin, prepend=True, with_kwargs=True))
        return hooks.remove

    def call(*args: Any, **kwargs: Any) -> Any:
        output = None
        begin(module, args, kwargs)
        run = module._call_impl if eagerly() else compiled
        try:
            output = run(*args, **kwargs)
        finally:
            end(module, args, kwargs, output)
        return output

    def restore() -> None:
        if module._compiled_call_impl is call:
            module._compiled_call_impl = compiled

    module._compiled_call_impl = call
    return restore


class HookSet:
    """Hooks that torch removes one by one, removed together."""

    def __init__(self) -> None:
        self._handles: list[RemovableHandle] = []

    def add(self, handle: RemovableHandle) -> None:
        self._handles.append(handle)

    def remove(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def __bool__(self) -> bool:
        return bool(self._handles)
