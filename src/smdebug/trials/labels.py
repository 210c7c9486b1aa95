"""Texts of a run on a plot: they are other people's."""

from __future__ import annotations

from smdebug.markup import cut, harmless

_LENGTH = 48


def label(name: object, length: int = _LENGTH) -> str:
    """A text of a run as matplotlib shows it as it is: neither a formula nor hidden.

    Example:
        >>> label("_a$b$")
        ' _a\\\\$b\\\\$'
    """
    text = cut(harmless(str(name)), length).replace("$", r"\$")
    # A legend leaves out what begins with an underscore.
    return f" {text}" if text.startswith("_") else text
