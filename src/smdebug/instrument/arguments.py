"""The arguments of a call that is on its way."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Arguments:
    """Finds and changes arguments by name, whether they were given by place or by name.

    What is wrong with them is for the function to say.

    Args:
        function: what is called.
        args: the arguments by place.
        kwargs: the arguments by name.

    Attributes:
        args: the arguments by place.
        kwargs: the arguments by name.

    Example:
        >>> def fit(x, y=None, callbacks=None): ...
        >>> arguments = Arguments(fit, (1, 2, []), {})
        >>> arguments.set("callbacks", ["hook"])
        >>> arguments.args
        (1, 2, ['hook'])
    """

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._names = list(inspect.signature(function).parameters)
        self.args, self.kwargs = args, kwargs

    def get(self, name: str) -> Any:
        """Returns an argument; None when it was not given."""
        place = self._place(name)
        return self.kwargs.get(name) if place is None else self.args[place]

    def set(self, name: str, value: Any) -> None:
        """Gives an argument another value."""
        place = self._place(name)
        if place is None:
            self.kwargs = {**self.kwargs, name: value}
        else:
            self.args = (*self.args[:place], value, *self.args[place + 1 :])

    def _place(self, name: str) -> int | None:
        place = self._names.index(name)
        return place if place < len(self.args) else None
