"""Names of modules: their paths, without wrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# The wrapper of torch.compile around a module.
_COMPILED = "_orig_mod"


def plain_path(path: str) -> str:
    """Return a dotted path without the wrappers of torch.compile.

    Example:
        >>> plain_path("_orig_mod.blocks.0._orig_mod.fc")
        'blocks.0.fc'
    """
    if _COMPILED not in path:
        return path
    return ".".join(part for part in path.split(".") if part != _COMPILED)


def original_module(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module that was passed to torch.compile, or the module itself."""
    while _COMPILED in module._modules:
        inner = module._modules[_COMPILED]
        assert inner is not None
        module = inner
    return module


def root_name(module: torch.nn.Module) -> str:
    """Return the name of a registered module: that of its class."""
    kind = type(original_module(module))
    # fully_shard derives a class from its mixin and the module's own class, in this order.
    if is_fsdp(original_module(module)) and len(kind.__mro__) > 2:
        return kind.__mro__[2].__name__
    return kind.__name__


def is_fsdp(module: torch.nn.Module) -> bool:
    """Return whether `fully_shard` was applied to a module."""
    # Checked by name: importing FSDP takes long.
    return any(base.__name__ == "FSDPModule" for base in type(module).__mro__)
