"""Lists the arguments of every hook for each framework's hook; an extension of griffe.

The decorator `inherit_arguments` does so when a class is imported; griffe reads the source instead.
"""

from __future__ import annotations

import copy
from typing import Any, cast

import griffe

from smdebug.hook.arguments import inherit_arguments, merge_docstrings, merge_names

_DECORATOR = f"{inherit_arguments.__module__}.{inherit_arguments.__name__}"


class InheritedArguments(griffe.Extension):
    """Completes the classes that are decorated with `inherit_arguments`."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        base = cast("griffe.Class", pkg["hook.hook.BaseHook"])
        for hook in _classes(pkg):
            if any(each.callable_path == _DECORATOR for each in hook.decorators):
                _complete(hook, base)


def _complete(hook: griffe.Class, base: griffe.Class) -> None:
    shared = {each.name: copy.copy(each) for each in _constructor(base).parameters}
    names = list(shared)
    if "__init__" in hook.members:
        constructor = _constructor(hook)
        own = {each.name: each for each in constructor.parameters}
        own.popitem()
        names = merge_names(own, shared)
        for each in shared.values():
            each.kind = griffe.ParameterKind.keyword_only
        constructor.parameters = griffe.Parameters(*({**shared, **own}[name] for name in names))
    assert hook.docstring is not None
    assert base.docstring is not None
    hook.docstring.value = merge_docstrings(hook.docstring.value, base.docstring.value, names)


def _constructor(kind: griffe.Class) -> griffe.Function:
    return cast("griffe.Function", kind.members["__init__"])


def _classes(module: griffe.Module) -> list[griffe.Class]:
    found = [each for each in module.classes.values() if not each.is_alias]
    for each in module.modules.values():
        if not each.is_alias:
            found += _classes(each)
    return found
