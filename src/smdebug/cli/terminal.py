"""What a command says to the person at the terminal."""

from __future__ import annotations

import sys


def say(message: str) -> None:
    """Says something beside the output of a command, which stays as it is."""
    sys.stderr.write(f"smdebug: {message}\n")
