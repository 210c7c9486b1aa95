"""Output of commands: messages, tables, JSON."""

from __future__ import annotations

import io
import json
import math
import sys
from typing import TYPE_CHECKING, Any

from smdebug.markup import harmless as harmless

if TYPE_CHECKING:
    from rich.console import Console

# The exit status if the reader of the output has closed it, as `head` does: 128 + SIGPIPE.
BROKEN_PIPE = 141


def print_message(message: str) -> None:
    """Print a message to stderr."""
    lines = "\n".join(harmless(line) for line in message.split("\n"))
    sys.stderr.write(f"smdebug: {lines}\n")


def console(width: int | None = None) -> Console:
    """Return the console for the output of a command, without markup.

    Strings of a run are printed as `rich.text.Text(harmless(name))`: they may hold anything.

    Args:
        width: in columns; that of the terminal when None, 80 without one.
    """
    # Not at the top: help and errors are printed without it.
    from rich.console import Console

    # A character that the terminal cannot show is replaced.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    out = Console(highlight=False, markup=False, emoji=False, width=width)
    end = out.on_broken_pipe

    def closed() -> None:
        try:
            end()
        except SystemExit:
            # 1 means that a command found something.
            sys.exit(BROKEN_PIPE)

    out.on_broken_pipe = closed
    return out


def print_json(value: Any) -> None:
    """Print a value as one JSON document.

    Non-finite numbers, which JSON does not have, are the strings "NaN", "Infinity" and "-Infinity".
    """
    sys.stdout.write(json.dumps(_json_value(value), indent=2, allow_nan=False) + "\n")


def json_line(value: Any) -> str:
    """Return a value as JSON on one line; see `print_json`."""
    return json.dumps(_json_value(value), allow_nan=False)


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(each) for each in value]
    if hasattr(value, "tolist"):
        return _json_value(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
