"""What a hook puts on a model, and how it goes away again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

# Takes anything, does nothing, and can be unpickled where this library is not installed.
_NOTHING = contextlib.nullcontext().__exit__


class Callback:
    """A function of the hook among the hooks of a model's parts.

    Copies of the model, and pickles of it, do not take it along: they are other models.

    Args:
        function: called with what the framework gives to its hooks.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> None:
        self._function(*arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _NOTHING

    def __reduce__(self) -> Any:
        return getattr, (contextlib.nullcontext(), "__exit__")


class Handle:
    """Takes a registration back, by `remove` or at the end of a `with` block.

    Example:
        >>> with hook.register_module(model):  # doctest: +SKIP
        ...     train(model)
    """

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove: Callable[[], None] | None = remove

    def remove(self) -> None:
        """Leaves what was registered as it was found; a second call does nothing."""
        remove, self._remove = self._remove, None
        if remove is not None:
            remove()

    def __enter__(self) -> Handle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self.remove()
