"""The arguments of every hook, in the signatures and docstrings of the frameworks' hooks.

`BaseHook` declares and describes them once; a framework's hook declares and describes its own.
"""

from __future__ import annotations

import inspect
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from smdebug.hook.hook import BaseHook

if TYPE_CHECKING:
    from collections.abc import Iterable

_Hook = TypeVar("_Hook", bound=type[BaseHook])

_SECTION = re.compile(r"^Args:\n(?:(?: {4}.*)?\n)*", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w+): .*\n(?: {5,}.*\n)*", re.MULTILINE)
_NEXT_SECTION = re.compile(r"^(?:Attributes|Raises|Example|Examples):$|\Z", re.MULTILINE)


def inherit_arguments(hook: _Hook) -> _Hook:
    """Complete the signature and the docstring of a hook with the arguments of `BaseHook`.

    A class decorator. If the constructor of the class takes `**options`, they stand for the
    arguments of `BaseHook` that it does not declare itself.
    """
    constructor: Any = vars(hook).get("__init__")
    if constructor is not None:
        *own, _ = inspect.signature(constructor).parameters.values()
        shared = inspect.signature(BaseHook.__init__).parameters
        merged = {name: each.replace(kind=each.KEYWORD_ONLY) for name, each in shared.items()}
        merged |= {each.name: each for each in own}
        names = merge_names((each.name for each in own), shared)
        constructor.__signature__ = inspect.Signature([merged[name] for name in names])
    # Both are None with `python -OO`.
    if hook.__doc__ and BaseHook.__doc__:
        names = list(inspect.signature(hook).parameters)
        hook.__doc__ = merge_docstrings(hook.__doc__, BaseHook.__doc__, names)
    return hook


def merge_names(own: Iterable[str], shared: Iterable[str]) -> list[str]:
    """Return all names in the order of the shared ones; any other follows its predecessor.

    Example:
        >>> merge_names(["out_dir", "data"], ["out_dir", "save_all"])
        ['out_dir', 'data', 'save_all']
    """
    names = list(shared)
    for predecessor, name in pairwise(own):
        if name not in names:
            names.insert(names.index(predecessor) + 1, name)
    return names


def merge_docstrings(own: str, shared: str, names: Iterable[str]) -> str:
    """Return a docstring with a section `Args` that describes all arguments.

    Args:
        own: the docstring; what it says about an argument comes first.
        shared: the docstring that describes the rest.
        names: the arguments in the order of the signature.
    """
    own, shared = (f"{inspect.cleandoc(text)}\n" for text in (own, shared))
    entries: dict[str, str] = {}
    for section in (_SECTION.search(shared), _SECTION.search(own)):
        if section is not None:
            entries |= {entry[1]: entry[0] for entry in _ENTRY.finditer(section[0])}
    rest = _SECTION.sub("", own)
    end = _NEXT_SECTION.search(rest)
    assert end is not None
    described = "".join(entries[name] for name in names if name in entries)
    return f"{rest[: end.start()].rstrip()}\n\nArgs:\n{described}\n{rest[end.start() :]}"
