"""The command `smdebug`.

It ends with 0; with 1 when it found what it looks for (damage, a difference, what a rule finds);
with 2 when it was told something that makes no sense, or could not do it; with 130 after Ctrl-C;
with 141 when nobody reads its output any more.
"""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING, NoReturn

import typer

from smdebug._version import __version__
from smdebug.cli.commands.check import check
from smdebug.cli.commands.compact import compact
from smdebug.cli.commands.demo import demo
from smdebug.cli.commands.diff import diff
from smdebug.cli.commands.export import export
from smdebug.cli.commands.layers import layers
from smdebug.cli.commands.ls import ls
from smdebug.cli.commands.rules import rules
from smdebug.cli.commands.run import run
from smdebug.cli.commands.show import show
from smdebug.cli.options import Command, Group
from smdebug.cli.render.terminal import UNREAD, say
from smdebug.exceptions import (
    DataCorrupted,
    IndexReaderException,
    SMDebugError,
    TensorUnavailable,
)

if TYPE_CHECKING:
    from smdebug.cli.launch import Launch

app = typer.Typer(
    name="smdebug",
    cls=Group,
    help="Tornasole, the training debugger.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
# What follows the script is the script's, whatever it looks like.
app.command(cls=Command, context_settings={"allow_interspersed_args": False})(run)
for command in (ls, show, layers, rules, diff, check, compact):
    app.command(cls=Command)(command)
# `export tensorboard RUN LOGDIR` has one argument more than `export RUN OUT`.
app.command(cls=Command, context_settings={"allow_extra_args": True})(export)
app.command(cls=Command)(demo)


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    if version:
        typer.echo(f"smdebug {__version__}")
        raise typer.Exit


def main() -> None:
    """Runs the command line."""
    launches: list[Launch] = []
    try:
        _parse(launches)
    except (SMDebugError, OSError) as error:
        _give_up(error)
    except MemoryError as error:
        _give_up(SMDebugError(f"there is not enough memory for this: {error}"))
    try:
        run_program = launches[0].prepare()
    except SMDebugError as error:
        _give_up(error)
    # Outside of everything that has an opinion on exceptions.
    run_program()


def _give_up(error: Exception) -> NoReturn:
    say(f"error: {error}{_what_to_do(error)}")
    sys.exit(2)


def _what_to_do(error: Exception) -> str:
    """What a person at a terminal can do about it, where the error itself speaks to programs."""
    if isinstance(error, DataCorrupted | IndexReaderException):
        return "; smdebug check RUN says what is damaged, and what is left"
    if isinstance(error, TensorUnavailable) and not error.nearest:
        return "; smdebug show RUN lists what was saved"
    return ""


def _parse(launches: list[Launch]) -> None:
    """Does what the command line says; the process ends with it, unless a program is launched."""
    try:
        app(obj=launches)
    except SystemExit as ended:
        if ended.code == 1 and _nobody_reads():
            # 1 is for what a command finds.
            sys.exit(UNREAD)
        if not launches:
            raise


def _nobody_reads() -> bool:
    """Whether the other end of the output is closed."""
    if not hasattr(select, "poll"):  # pragma: no cover - not on Windows
        return False
    pipe = select.poll()
    pipe.register(1, select.POLLOUT)
    return any(event & select.POLLERR for _, event in pipe.poll(0))
