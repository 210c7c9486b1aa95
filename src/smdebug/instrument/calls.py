"""Calls of instrumented functions: their arguments, and calls that are not nested in others."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Arguments:
    """The arguments of a call, by name, however they were passed.

    Invalid arguments are kept as they are: the function itself raises the error.

    Args:
        function: the function that is called.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Attributes:
        args: the positional arguments, with changes.
        kwargs: the keyword arguments, with changes.

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
        # Not Signature.bind: xgboost.train still accepts positional arguments that its signature
        # declares as keyword-only.
        self._positions = {name: i for i, name in enumerate(inspect.signature(function).parameters)}
        self.args, self.kwargs = args, kwargs

    def get(self, name: str) -> Any:
        """Return an argument; None if it was not passed."""
        position = self._positions[name]
        return self.args[position] if position < len(self.args) else self.kwargs.get(name)

    def set(self, name: str, value: Any) -> None:
        """Replace an argument, or add it."""
        position = self._positions[name]
        if position < len(self.args):
            self.args = (*self.args[:position], value, *self.args[position + 1 :])
        else:
            self.kwargs = {**self.kwargs, name: value}


def report_root_calls(
    is_active: Callable[[], bool], report: Callable[[Any], None]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that reports calls of modules that no other module makes.

    Args:
        is_active: whether calls are reported at the moment.
        report: receives the module before it is called.

    Example:
        >>> double = report_root_calls(lambda: True, print)(lambda number: 2 * number)
        >>> double(3)
        3
        6
    """
    # One flag per thread: some frameworks call the parts of a model in one thread per device.
    thread = threading.local()

    def decorator(call: Callable[..., Any]) -> Callable[..., Any]:
        def root_call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_active() or getattr(thread, "in_root", False):
                return call(module, *args, **kwargs)
            report(module)
            thread.in_root = True
            try:
                return call(module, *args, **kwargs)
            finally:
                thread.in_root = False

        return root_call

    return decorator
