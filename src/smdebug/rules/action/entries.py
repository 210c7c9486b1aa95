"""Actions as they are written down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from smdebug.config.lenient_json import parse_json
from smdebug.exceptions import SMDebugValueError
from smdebug.rules.action.failure import without_secrets

# JSON within JSON within JSON ...: deeper than any tool packs it.
_DEEPEST = 5


def entries_of(given: Any) -> list[Any]:
    """Returns what is said about each action.

    Args:
        given: JSON text of an object or a list of objects, also with its quotes escaped, as the
            SageMaker SDK delivers it, or as a JSON string; or what such text stands for. Nothing,
            an empty text and null are no actions.

    Raises:
        SMDebugValueError: it is something else.

    Example:
        >>> entries_of(r'[{\\"name\\": \\"email\\", \\"endpoint\\": \\"Me@example.org\\"}]')
        [{'name': 'email', 'endpoint': 'Me@example.org'}]
    """
    value = given
    for _ in range(_DEEPEST):
        if isinstance(value, str):
            value = _unpacked(value, given) if value.strip() else None
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [value]
    if isinstance(value, list | tuple):
        return list(value)
    raise SMDebugValueError(
        "actions must be a JSON object with a 'name', or a list of them, got "
        f"{without_secrets(given)}"
    )


def _unpacked(text: str, given: Any) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        unescaped = _unescaped(text)
        if unescaped is not None:
            return unescaped
        where = str(error) if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise SMDebugValueError(
            f"actions must be JSON text, got {without_secrets(given)}: {where}"
        ) from None


def _unescaped(text: str) -> str | None:
    """Returns text without one layer of escapes; None when it has none."""
    try:
        unescaped = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return None
    return unescaped if isinstance(unescaped, str) and unescaped != text else None
