"""The names of modules: their paths, without what wraps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# What torch.compile puts around a module.
_COMPILED = "_orig_mod"


def plain_path(path: str) -> str:
    """A dotted path without the wrappers of torch.compile.

    Example:
        >>> plain_path("_orig_mod.blocks.0._orig_mod.fc")
        'blocks.0.fc'
    """
    if _COMPILED not in path:
        return path
    return ".".join(part for part in path.split(".") if part != _COMPILED)


def original_module(module: torch.nn.Module) -> torch.nn.Module:
    """The module that torch.compile was given, or the module itself."""
    while _COMPILED in module._modules:
        inner = module._modules[_COMPILED]
        assert inner is not None
        module = inner
    return module


def root_name(module: torch.nn.Module) -> str:
    """The name of a registered module: that of its class."""
    kind = type(original_module(module))
    # fully_shard derives a class from the module's own, which stands right behind its mixin.
    if is_fsdp(original_module(module)) and len(kind.__mro__) > 2:
        return kind.__mro__[2].__name__
    return kind.__name__


def is_fsdp(module: torch.nn.Module) -> bool:
    """Whether `fully_shard` was applied to a module."""
    # Asked by name: importing FSDP takes longer than most scripts want to wait.
    return any(base.__name__ == "FSDPModule" for base in type(module).__mro__)
