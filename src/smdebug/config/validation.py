"""Checks of single values; each error has the argument, the expected value and the given one."""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any

from smdebug.exceptions import SMDebugTypeError, SMDebugValueError

_SHOWN_LENGTH = 120
# Keys that are less similar to ours are not misspelled ones.
_NEAR = 0.7


def short_repr(value: object) -> str:
    """Return the repr of a value, cut so that an error message stays readable."""
    text = repr(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


def did_you_mean(given: object, known: Iterable[str], cutoff: float = _NEAR) -> str:
    """Return a sentence that offers the nearest known name, or nothing if none is near.

    Example:
        >>> did_you_mean("gradient", ["weights", "gradients"])
        " Did you mean 'gradients'?"
    """
    by_lower_case = {key.lower(): key for key in known}
    near = difflib.get_close_matches(str(given).lower(), by_lower_case, n=1, cutoff=cutoff)
    return f" Did you mean {by_lower_case[near[0]]!r}?" if near else ""


def whole_number(key: str, value: object, minimum: int = 0) -> int:
    """Return `int(value)`: `5`, `"5"` and `5.7` pass; a bool, NaN or too small a number does not.

    Example:
        >>> whole_number("save_interval", "5", minimum=1)
        5
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = int(value)  # type: ignore[call-overload]  # int() decides
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number < minimum:
        expected = "a positive integer" if minimum == 1 else f"an integer of at least {minimum}"
        raise SMDebugValueError(f"{key} must be {expected}, got {short_repr(value)}")
    return int(number)


def step_list(key: str, value: object) -> list[int]:
    """Return a copy of a list of step numbers."""
    expected = (
        f"{key} must be a list of step numbers (integers of at least 0), got {short_repr(value)}"
    )
    if not isinstance(value, list):
        raise SMDebugValueError(expected)
    steps = []
    for item in value:
        try:
            step = -1 if isinstance(item, bool) else operator.index(item)
        except TypeError:
            step = -1
        if step < 0:
            raise SMDebugValueError(f"{expected}: {short_repr(item)} is not one")
        steps.append(step)
    return steps


def number(
    key: str, value: object, minimum: float | None = None, maximum: float | None = None
) -> float:
    """Return a finite number within bounds; number strings pass, bools do not.

    Example:
        >>> number("threshold", "1e-7", minimum=0)
        1e-07
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        found = float(value)  # type: ignore[arg-type]  # float() decides
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    low = -math.inf if minimum is None else minimum
    high = math.inf if maximum is None else maximum
    if not math.isfinite(found) or not low <= found <= high:
        bounds = [] if minimum is None else [f"of at least {minimum:g}"]
        bounds += [] if maximum is None else [f"of at most {maximum:g}"]
        expected = " ".join(["a number", " and ".join(bounds)]).strip()
        raise SMDebugValueError(f"{key} must be {expected}, got {short_repr(value)}")
    return found


def seconds(key: str, value: object) -> float:
    """Return a finite number of seconds that is not negative; number strings pass."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]  # float() decides
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise SMDebugValueError(
            f"{key} must be a number of seconds of at least 0, got {short_repr(value)}"
        )
    return number


def boolean(key: str, value: object) -> bool:
    """Return a bool given as `True`, `1`, `"true"` (any case) and the like.

    Example:
        >>> boolean("save_all", "True")
        True
    """
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise SMDebugValueError(f"{key} must be true or false, got {short_repr(value)}")


def choice(key: str, value: object, allowed: Iterable[str]) -> str:
    """Return the value if it is one of the allowed words."""
    words = tuple(allowed)
    if not isinstance(value, str) or value not in words:
        raise SMDebugValueError(f"{key} must be one of {', '.join(words)}, got {short_repr(value)}")
    return value


def text(key: str, value: object) -> str:
    """Return the value if it is a string that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise SMDebugValueError(f"{key} must be a non-empty string, got {short_repr(value)}")
    return value


def names(key: str, value: object) -> list[str]:
    """Flatten names: a string, an object with a `name`, or lists of them, however nested.

    Example:
        >>> names("include_regex", ["relu", ["tanh", ("conv",)]])
        ['relu', 'tanh', 'conv']
    """
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [name for item in value for name in names(key, _not_none(key, item))]
    if isinstance(value, set | frozenset):
        return sorted(name for item in value for name in names(key, _not_none(key, item)))
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if not isinstance(name, str):
        raise SMDebugTypeError(
            f"{key} must be a string, an object with a `name`, or a list of them, "
            f"got {short_repr(value)} of type {type(value).__name__}"
        )
    return [name]


def _not_none(key: str, item: object) -> object:
    if item is None:
        raise SMDebugTypeError(f"{key} must be a list of strings, got None in it")
    return item


def comma_list(key: str, value: object) -> list[str]:
    """Return the trimmed items of a comma string or of a list; empty ones are dropped.

    Example:
        >>> comma_list("reductions", "min, max,")
        ['min', 'max']
    """
    if value is None:
        return []
    if not isinstance(value, str) and not (
        isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    ):
        raise SMDebugValueError(
            f"{key} must be a string with commas or a list of strings, got {short_repr(value)}"
        )
    items = value.split(",") if isinstance(value, str) else list(value)
    return [item.strip() for item in items if item.strip()]


def regex(key: str, pattern: str) -> re.Pattern[str]:
    """Compile a regular expression.

    Raises:
        SMDebugValueError: `re` cannot compile it; the message has the reason.
    """
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise SMDebugValueError(
            f"{key} must be a valid regular expression, got {short_repr(pattern)}: {error}"
        ) from error


def mapping(key: str, value: object) -> Mapping[str, Any]:
    """Return the value if it is a dict."""
    if not isinstance(value, Mapping):
        raise SMDebugValueError(f"{key} must be a dict (a JSON object), got {short_repr(value)}")
    return value


def unknown_keys(given: Iterable[object], known: Iterable[str], cutoff: float = _NEAR) -> list[str]:
    """Return the keys that are not known ones.

    Raises:
        SMDebugValueError: a key is so similar to a known one that it is misspelled. Ignoring it
            would save other tensors than the user wants.
    """
    by_lower_case = {key.lower(): key for key in known}
    unknown = [str(key) for key in given if key not in by_lower_case.values()]
    for key in unknown:
        near = difflib.get_close_matches(key.lower(), by_lower_case, n=1, cutoff=cutoff)
        if near:
            raise SMDebugValueError(
                f"Unknown key {key!r}. Did you mean {by_lower_case[near[0]]!r}?"
            )
    return unknown
