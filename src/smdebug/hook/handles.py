"""Callbacks that a hook attaches to a model, and handles that remove them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

# Accepts any arguments, does nothing, and can be unpickled where this library is not installed.
_NOTHING = contextlib.nullcontext().__exit__


class Callback:
    """A callback that a hook attaches to a part of a model.

    Copies and pickles of the model do not contain it: they are different models.

    Args:
        function: called with the arguments that the framework passes to its hooks.
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
    """Removes a registration, by `remove` or at the end of a `with` block.

    Example:
        >>> with hook.register_module(model):  # doctest: +SKIP
        ...     train(model)
    """

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove: Callable[[], None] | None = remove

    def remove(self) -> None:
        """Remove the registration and restore the original state; a second call does nothing."""
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
