"""What a command says to the person at the terminal, and to other programs."""

from __future__ import annotations

import io
import json
import math
import sys
from typing import TYPE_CHECKING, Any

from smdebug.markup import harmless as harmless

if TYPE_CHECKING:
    from rich.console import Console

# How a command ends when whoever read its output has seen enough, as `head` does. A shell says it
# of programs that the signal for it has ended.
UNREAD = 141


def say(message: str) -> None:
    """Says something beside the output of a command, which stays as it is."""
    lines = "\n".join(harmless(line) for line in message.split("\n"))
    sys.stderr.write(f"smdebug: {lines}\n")


def console(width: int | None = None) -> Console:
    """Where the output of a command goes: tables and plots, without a markup of their own.

    Texts of a run are given to it as `rich.text.Text(harmless(name))`: names are other people's.

    Args:
        width: how many columns it has; what the terminal says when None, 80 without one.
    """
    # Here: commands that only print their help or an error do without.
    from rich.console import Console

    # A terminal that cannot show a character is no reason to stop.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    out = Console(highlight=False, markup=False, emoji=False, width=width)
    end = out.on_broken_pipe

    def unread() -> None:
        try:
            end()
        except SystemExit:
            # 1 is for what a command finds.
            sys.exit(UNREAD)

    out.on_broken_pipe = unread
    return out


def print_json(value: Any) -> None:
    """Prints a value as one JSON document.

    Numbers that JSON has no word for are the strings "NaN", "Infinity" and "-Infinity".
    """
    sys.stdout.write(json.dumps(_plain(value), indent=2, allow_nan=False) + "\n")


def json_line(value: Any) -> str:
    """A value as JSON on one line; see `print_json`."""
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
