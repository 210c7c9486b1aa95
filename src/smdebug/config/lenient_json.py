"""JSON as people write it: a comma before a closing bracket is no mistake."""

from __future__ import annotations

import json
from typing import Any

from smdebug.exceptions import SMDebugValueError


def parse_json(text: str) -> Any:
    """Parses JSON that may have trailing commas.

    Example:
        >>> parse_json('{"save_steps": [1, 2,], "note": ",]",}')
        {'save_steps': [1, 2], 'note': ',]'}
    """
    return json.loads(without_trailing_commas(text))


def parse_strictly(key: str, text: str) -> Any:
    """Parses JSON text that a program wrote.

    Raises:
        SMDebugValueError: it is not JSON; `key` says what it was meant to be.
    """
    try:
        return json.loads(text)
    except (TypeError, ValueError) as error:
        raise SMDebugValueError(f"{key} must be JSON text, got {text!r}: {error}") from error


def without_trailing_commas(text: str) -> str:
    """Replaces each trailing comma by a space, so that error positions stay right.

    Commas inside strings are left alone, and so is a comma that follows no value: `[,]` and
    `[1,,]` stay mistakes.
    """
    out = list(text)
    in_string = escaped = False
    before = ""  # the last character outside of strings that is no space
    comma = -1  # position of a comma that followed a value, until something else comes
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
