"""A list and a set that report when they change.

Scripts change the regexes and names of a collection in place, at any time.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def _notifying(base: type, *mutators: str) -> Callable[[type], type]:
    """Return a class decorator: each of the methods calls `on_change` when it returns."""

    def notify_after(method: Any) -> Any:
        @functools.wraps(method)
        def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = method(self, *args, **kwargs)
            self.on_change()
            return result

        return changing

    def decorate(kind: type) -> type:
        for name in mutators:
            setattr(kind, name, notify_after(getattr(base, name)))
        return kind

    return decorate


@_notifying(
    list, "append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse",
    "__setitem__", "__delitem__", "__iadd__", "__imul__",
)  # fmt: skip
class ObservedList(list[str]):
    """A list of strings.

    Args:
        items: what it holds at first.
        on_change: called after every change.

    Example:
        >>> regexes = ObservedList(["relu"], lambda: print("changed"))
        >>> regexes.append("tanh")
        changed
    """

    def __init__(self, items: Iterable[str], on_change: Callable[[], None]) -> None:
        super().__init__(items)
        self.on_change = on_change

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A copy and a pickle are plain lists: nothing observes them.
        return list, (list(self),)


@_notifying(
    set, "add", "update", "discard", "remove", "pop", "clear", "difference_update",
    "intersection_update", "symmetric_difference_update", "__ior__", "__iand__", "__isub__",
    "__ixor__",
)  # fmt: skip
class ObservedSet(set[str]):
    """A set of strings.

    Args:
        items: what it holds at first.
        on_change: called after every change.
    """

    def __init__(self, items: Iterable[str], on_change: Callable[[], None]) -> None:
        super().__init__(items)
        self.on_change = on_change

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A copy and a pickle are plain sets: nothing observes them.
        return set, (set(self),)
