"""Switching the refreshing of trials on and off, and reading rule parameters."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.trials.trial import Trial

__all__ = ["no_refresh", "parse_bool", "parse_list_from_str", "refresh"]

_TRUE, _FALSE = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0")


@contextmanager
def no_refresh(trials: Trial | Iterable[Trial]) -> Iterator[list[Trial]]:
    """Within the block the trials do not look for new steps.

    What was before is restored at the end, also after an exception; blocks nest.

    Example:
        >>> with no_refresh(trial):  # doctest: +SKIP
        ...     trial.steps()
    """
    with _refreshing(trials, False) as listed:
        yield listed


@contextmanager
def refresh(trials: Trial | Iterable[Trial]) -> Iterator[list[Trial]]:
    """Within the block the trials look for new steps, also inside `no_refresh`.

    Example:
        >>> with refresh(trial):  # doctest: +SKIP
        ...     trial.steps()
    """
    with _refreshing(trials, True) as listed:
        yield listed


@contextmanager
def _refreshing(trials: Trial | Iterable[Trial], on: bool) -> Iterator[list[Trial]]:
    listed: list[Any] = [trials] if hasattr(trials, "dynamic_refresh") else list(trials)
    before = [trial.dynamic_refresh for trial in listed]
    try:
        for trial in listed:
            trial.dynamic_refresh = on
        yield listed
    finally:
        for trial, was in zip(listed, before, strict=True):
            trial.dynamic_refresh = was


def parse_list_from_str(arg: Any, delimiter: str = ",") -> list[str]:
    """Turns a comma string into a list of trimmed parts; a list stays as it is.

    Example:
        >>> parse_list_from_str("a, b,")
        ['a', 'b']
    """
    if arg is None:
        return []
    if isinstance(arg, str):
        return [part.strip() for part in arg.split(delimiter) if part.strip()]
    if isinstance(arg, (list, tuple)):
        return list(arg)
    raise SMDebugValueError(f"expected a list or a comma-separated string, got {arg!r}")


def parse_bool(arg: Any, default: bool = False) -> bool:
    """Reads a switch from what JSON or a command line delivers.

    Example:
        >>> parse_bool("True"), parse_bool(None, default=True)
        (True, True)
    """
    if arg is None:
        return default
    text = str(arg).strip().lower()
    if text in (*_TRUE, *_FALSE):
        return text in _TRUE
    raise SMDebugValueError(f"expected true or false, got {arg!r}")
