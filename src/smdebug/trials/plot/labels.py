"""Texts of a run on a plot: they are other people's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.markup import cut, cut_apart, harmless

if TYPE_CHECKING:
    from collections.abc import Iterable

_LENGTH = 48


def label(name: object, length: int = _LENGTH) -> str:
    """A text of a run as matplotlib shows it as it is: neither a formula nor hidden.

    Example:
        >>> label("_a$b$")
        ' _a\\\\$b\\\\$'
    """
    return _shown(cut(harmless(str(name)), length))


def labels(names: Iterable[object], length: int = _LENGTH) -> list[str]:
    """The same of several texts that stand side by side, and are to be told apart.

    Example:
        >>> labels(["layers.1.weight", "layers.2.weight"], 10)
        ['…1.weight', '…2.weight']
    """
    return [_shown(each) for each in cut_apart([harmless(str(name)) for name in names], length)]


def _shown(text: str) -> str:
    text = text.replace("$", r"\$")
    # A legend leaves out what begins with an underscore.
    return f" {text}" if text.startswith("_") else text
