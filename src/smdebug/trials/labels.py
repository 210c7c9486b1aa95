"""Texts of a run on a plot: they are other people's."""

from __future__ import annotations

from smdebug.markup import cut

_LENGTH = 48


def label(name: object, length: int = _LENGTH) -> str:
    """A text of a run as matplotlib shows it as it is: neither a formula nor hidden.

    Example:
        >>> label("_a$b$")
        ' _a\\\\$b\\\\$'
    """
    plain = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in str(name)
    )
    text = cut(plain, length).replace("$", r"\$")
    # A legend leaves out what begins with an underscore.
    return f" {text}" if text.startswith("_") else text
