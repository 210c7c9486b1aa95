"""The command `smdebug`.

Exit status: 0; 1 if a command found what it looks for (damage, a difference, a finding); 2 for
invalid arguments or a failure; 130 after Ctrl-C; 141 if the reader of the output has closed it.
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
from smdebug.cli.render.terminal import BROKEN_PIPE, print_message
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
# All arguments after the script belong to the script.
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
    """Run the command line."""
    launches: list[Launch] = []
    try:
        _parse(launches)
    except (SMDebugError, OSError) as error:
        _exit_with_error(error)
    except MemoryError as error:
        _exit_with_error(SMDebugError(f"not enough memory: {error}"))
    try:
        run_program = launches[0].prepare()
    except SMDebugError as error:
        _exit_with_error(error)
    # Outside of all exception handling.
    run_program()


def _exit_with_error(error: Exception) -> NoReturn:
    print_message(f"error: {error}{_hint(error)}")
    sys.exit(2)


def _hint(error: Exception) -> str:
    """Return what a user can do about an error of the library."""
    if isinstance(error, DataCorrupted | IndexReaderException):
        return "; smdebug check RUN lists what is damaged"
    if isinstance(error, TensorUnavailable) and not error.nearest:
        return "; smdebug show RUN lists what was saved"
    return ""


def _parse(launches: list[Launch]) -> None:
    """Run the command and exit, unless a program is to be launched."""
    try:
        app(obj=launches)
    except SystemExit as ended:
        if ended.code == 1 and _output_is_closed():
            # 1 means that a command found something.
            sys.exit(BROKEN_PIPE)
        if not launches:
            raise


def _output_is_closed() -> bool:
    """Return whether the reader of the output has closed it."""
    if not hasattr(select, "poll"):  # pragma: no cover - not on Windows
        return False
    pipe = select.poll()
    pipe.register(1, select.POLLOUT)
    return any(event & select.POLLERR for _, event in pipe.poll(0))
