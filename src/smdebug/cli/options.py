"""Arguments and options that several commands share, and the layout of their help."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

RunPath = Annotated[str, typer.Argument(help="The run: a directory or a URL.", metavar="RUN")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON, for other programs, instead of a table.")
]
ModeName = Annotated[
    str | None,
    typer.Option("--mode", help="Only steps of this mode: train, eval, predict.", metavar="MODE"),
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Follow the run until the job ends or Ctrl-C.")
]
WorkerName = Annotated[
    str | None,
    typer.Option("--worker", help="The worker; the first one if not given."),
]


class _UntypedFlags:
    """Hides the type of flags, which typer shows as `--json <bool>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params


class Command(_UntypedFlags, TyperCommand):
    """A command of `smdebug`."""


class Group(_UntypedFlags, TyperGroup):
    """`smdebug` itself."""


def help_text(text: str, *examples: str) -> str:
    """Return the help of a command: what it does, then examples.

    Example:
        >>> print(help_text("Merge files.", "smdebug compact runs/one"))
        Merge files.
        <BLANKLINE>
        Examples:
        <BLANKLINE>
            smdebug compact runs/one
        <BLANKLINE>
        <BLANKLINE>
    """
    return f"{text}\n\nExamples:\n\n" + "".join(f"    {example}\n\n" for example in examples)
