"""Texts of a run where they are shown: escaped here, and only here; elements of SVG and HTML."""

from __future__ import annotations

import html
import re
from typing import Any

# What XML cannot hold, not even escaped.
# Beside those: what turns the direction of a line around, or is not seen at all.
_NO_TEXT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff"
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
_ELLIPSIS = "\u2026"


def escape(value: object) -> str:
    """Any value as text that is only text, in an element and in an attribute.

    Example:
        >>> escape("<script>")
        '&lt;script&gt;'
    """
    return html.escape(_NO_TEXT.sub("\ufffd", str(value)), quote=True)


def harmless(text: str) -> str:
    """A text on one line, without characters that a terminal would obey.

    Example:
        >>> harmless("loss\\x1b[2J")
        'loss\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def cut(value: object, length: int) -> str:
    """A text of at most so many characters; the middle of a longer one is left out.

    Example:
        >>> cut("a_very_long_name", 9)
        'a_ver…ame'
    """
    text = str(value)
    if len(text) <= length:
        return text
    tail = (length - 1) * 2 // 5
    return f"{text[: length - 1 - tail]}{_ELLIPSIS}{text[len(text) - tail :]}"


def tag(name: str, content: str = "", **attributes: Any) -> str:
    """An element around content that is markup already.

    Args:
        name: such as `rect`.
        content: what is in it.
        attributes: `class_` stands for `class`, `stroke_width` for `stroke-width`; numbers are
            rounded to a tenth.

    Example:
        >>> tag("circle", class_="c0", r=2.51)
        '<circle class="c0" r="2.5"></circle>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{content}</{name}>"


def label(content: object, x: float, y: float, **attributes: Any) -> str:
    """A text in a drawing."""
    return tag("text", escape(content), x=x, y=y, **attributes)


def drawing(content: str, width: float, height: float, title: str) -> str:
    """A whole drawing, which is as wide as the place it is put in allows."""
    return tag(
        "svg",
        content,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=title,
        style=f"max-width:{width * 1.25:g}px",
    )


def _number(value: Any) -> Any:
    return f"{round(value, 1):g}" if isinstance(value, float) else value
