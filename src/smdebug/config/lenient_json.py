"""JSON with trailing commas, as people write it."""

from __future__ import annotations

import json
from typing import Any

from smdebug.exceptions import SMDebugValueError


def parse_json(text: str) -> Any:
    """Parse JSON that may have trailing commas.

    Example:
        >>> parse_json('{"save_steps": [1, 2,], "note": ",]",}')
        {'save_steps': [1, 2], 'note': ',]'}
    """
    return json.loads(without_trailing_commas(text))


def parse_strictly(key: str, text: str) -> Any:
    """Parse JSON that a program wrote.

    Raises:
        SMDebugValueError: it is not JSON; `key` is its name in the message.
    """
    try:
        return json.loads(text)
    except (TypeError, ValueError) as error:
        raise SMDebugValueError(f"{key} must be JSON, got {text!r}: {error}") from error


def without_trailing_commas(text: str) -> str:
    """Replace each trailing comma by a space, so that error positions stay right.

    Commas in strings stay, and so does a comma that follows no value: `[,]` and `[1,,]` stay
    errors.
    """
    out = list(text)
    in_string = escaped = False
    before = ""  # the last character outside strings that is not a space
    comma = -1  # the position of a comma after a value, until another character follows
    for position, char in enumerate(text):
        if in_string:
            in_string = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif not char.isspace():
            if char in "]}" and comma >= 0:
                out[comma] = " "
            comma = position if char == "," and before not in ("", ",", "[", "{", ":") else -1
            in_string = char == '"'
            before = char
    return "".join(out)
