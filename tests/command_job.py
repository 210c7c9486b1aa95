"""What a process of `tests.zygote` does to be the command `smdebug`."""

from __future__ import annotations

import importlib
import os
import pkgutil
import runpy
import sys
from typing import TYPE_CHECKING

import smdebug.cli

if TYPE_CHECKING:
    from tests.zygote import Line


def prepare() -> None:
    """Imports what commands import when they are called, once for all of them."""
    for module in pkgutil.walk_packages(smdebug.cli.__path__, "smdebug.cli."):
        # The demo needs packages that may not be installed.
        if not module.name.startswith("smdebug.cli.demo"):
            importlib.import_module(module.name)


def smdebug_command(line: Line, directory: str, arguments: list[str], out: str, err: str) -> None:
    """Runs a command in a directory; what it writes is in two files."""
    # First of all: whatever goes wrong is told there.
    for number, path in ((sys.stdout.fileno(), out), (sys.stderr.fileno(), err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.chdir(directory)
    sys.argv = ["smdebug", *arguments]
    runpy.run_module("smdebug", run_name="__main__", alter_sys=True)
