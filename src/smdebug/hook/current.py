"""The hook of this process, found by scripts and libraries that did not make it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.exceptions import SMDebugTypeError

if TYPE_CHECKING:
    from smdebug.hook.base import BaseHook

_current: BaseHook | None = None


def current_hook() -> BaseHook | None:
    """Returns the hook of this process, whatever its framework."""
    return _current


def set_hook(hook: BaseHook) -> None:
    """Makes a hook the one of this process.

    Raises:
        SMDebugTypeError: it is no hook.
    """
    from smdebug.hook.base import BaseHook

    if not isinstance(hook, BaseHook):
        raise SMDebugTypeError(f"hook must be a hook, got {hook!r} of type {type(hook).__name__}")
    global _current
    _current = hook


def del_hook() -> None:
    """Forgets the hook of this process; it is not closed."""
    global _current
    _current = None
