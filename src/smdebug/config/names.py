"""Names that must not collide."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container


def unique_name(name: str, taken: Container[str]) -> str:
    """Return the name, with the first free number appended if it is taken.

    Example:
        >>> unique_name("kernel", {"kernel", "kernel_1"})
        'kernel_2'
    """
    if name not in taken:
        return name
    numbered = (f"{name}_{number}" for number in itertools.count(1))
    return next(each for each in numbered if each not in taken)
