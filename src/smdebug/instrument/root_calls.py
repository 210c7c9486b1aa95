"""Calls of modules that no other module makes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class RootCalls:
    """Tells of outermost calls, before they are made.

    Args:
        looks: whether anybody wants to know.
        tell: called with the module.

    Example:
        >>> watch = RootCalls(lambda: True, print)
        >>> double = watch.telling(lambda number: 2 * number)
        >>> double(3)
        3
        6
    """

    def __init__(self, looks: Callable[[], bool], tell: Callable[[Any], None]) -> None:
        self._looks, self._tell = looks, tell
        # In every thread: some frameworks have one for each device.
        self._inside = threading.local()

    def telling(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that does what `call` does, and tells."""
        looks, inside = self._looks, self._inside

        def outermost_call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not looks() or getattr(inside, "yes", False):
                return call(module, *args, **kwargs)
            self._tell(module)
            inside.yes = True
            try:
                return call(module, *args, **kwargs)
            finally:
                inside.yes = False

        return outermost_call
