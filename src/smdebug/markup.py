"""Texts of a run where they are shown: escaped here, and only here; elements of SVG and HTML."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    return _cut_at(str(value), length, _usual_head(length))


def cut_apart(texts: Sequence[str], length: int, head: int | None = None) -> list[str]:
    """Texts of at most so many characters each, cut where they can still be told apart.

    The names of layers often differ by a number in the middle, which `cut` would leave out.

    Args:
        texts: the texts.
        length: how long each may be.
        head: how much of a beginning is kept, if that is no matter; as `cut` does when None.

    Example:
        >>> cut_apart(["model.layers.1.weight", "model.layers.2.weight"], 12)
        ['…1.weight', '…2.weight']
    """
    wanted = _usual_head(length) if head is None else head
    heads = sorted(range(length), key=lambda each: abs(each - wanted))
    long = [text for text in texts if len(text) > length]
    front, back = _shared(long), _shared([text[::-1] for text in long])
    best: list[str] = []
    # What all begin with, or end with, is dropped only where that helps.
    for left, right in ((0, 0), (front, 0), (0, back), (front, back)):
        bare = [text if len(text) <= length else _without(text, left, right) for text in texts]
        for each in heads:
            found = [_cut_at(text, length, each) for text in bare]
            if not best or len(set(found)) > len(set(best)):
                best = found
            if len(set(best)) == len(set(texts)):
                return best
    return best


def _usual_head(length: int) -> int:
    return length - 1 - (length - 1) * 2 // 5


def _cut_at(text: str, length: int, head: int) -> str:
    if len(text) <= length:
        return text
    return f"{text[:head]}{_ELLIPSIS}{text[len(text) - (length - 1 - head) :]}"


def _shared(texts: Sequence[str]) -> int:
    """How much texts have in common at their beginning, up to the end of a word."""
    count = 0
    for letters in zip(*texts, strict=False):
        if len(set(letters)) > 1:
            break
        count += 1
    while count and texts[0][count - 1].isalnum():
        count -= 1
    return count


def _without(text: str, front: int, back: int) -> str:
    """A text without its ends, where something is left."""
    if front + back >= len(text):
        return text
    inner = text[front : len(text) - back]
    return f"{_ELLIPSIS if front else ''}{inner}{_ELLIPSIS if back else ''}"


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
