"""Another function in the place of one that training calls, until it is taken back."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Patch:
    """Replaces an attribute of a class or a module.

    Args:
        owner: the class or module.
        name: the attribute, a function.
        make: given the function that was there, returns the one to put in its place.

    Attributes:
        function: what was put there.

    Example:
        >>> class Model:
        ...     def fit(self):
        ...         return 1
        >>> patch = Patch(Model, "fit", lambda fit: lambda self: fit(self) + 1)
        >>> Model().fit()
        2
        >>> patch.remove()
        >>> Model().fit()
        1
    """

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self._owner, self._name = owner, name
        self._own = name in vars(owner)
        self._original = getattr(owner, name)
        made = make(self._original)
        self.function = functools.update_wrapper(made, self._original)
        setattr(owner, name, self.function)

    def remove(self) -> None:
        """Puts back what was there, unless somebody else has replaced it since."""
        if vars(self._owner).get(self._name) is not self.function:
            return
        if self._own:
            setattr(self._owner, self._name, self._original)
        else:
            delattr(self._owner, self._name)
