"""The names of tensors: parameters by their path, inputs and outputs by module, kind and place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

GRADIENT_PREFIX = "gradient/"
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


def tensors_in(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields every tensor in a value that a module takes or returns, with the keys that lead to it.

    Dicts, dataclasses and named tuples have keys; the places in tuples and lists are counted by
    `StepNames`.

    Example:
        >>> [path for path, _ in tensors_in({"a": [torch.ones(1)], "b": {"c": torch.ones(1)}})]
        [('a', ''), ('b', 'c')]
    """
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_in(item, (*_without_place(path), str(key)))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for key, item in zip(value._fields, value, strict=True):
            yield from tensors_in(item, (*_without_place(path), str(key)))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item, (*_without_place(path), ""))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            item = getattr(value, field.name, None)
            yield from tensors_in(item, (*_without_place(path), field.name))


def _without_place(path: tuple[str, ...]) -> tuple[str, ...]:
    # Nested lists are counted through, as if they were one.
    return path[:-1] if path and path[-1] == "" else path


class StepNames:
    """Names the inputs and outputs of modules within one step.

    A tensor without a key gets the next number of its module and kind; one with a key gets the
    key, and a number only when the key comes again.

    Example:
        >>> names = StepNames()
        >>> names.next("fc", "output", ("",)), names.next("fc", "output", ("",))
        ('fc_output_0', 'fc_output_1')
        >>> names.next("net", "output", ("logits",)), names.next("net", "output", ("logits",))
        ('net_output_logits', 'net_output_logits_1')
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._given: set[str] = set()

    def next(self, module: str, kind: str, path: tuple[str, ...]) -> str:
        """Returns the name of the next tensor of a module."""
        keys = _without_place(path)
        name = "_".join((module, kind, *keys))
        counted = not keys or path[-1] == ""
        while True:
            number = self._counts.get(name, 0)
            self._counts[name] = number + 1
            full = f"{name}_{number}" if counted or number else name
            # A key may be a number too.
            if full not in self._given:
                self._given.add(full)
                return full
