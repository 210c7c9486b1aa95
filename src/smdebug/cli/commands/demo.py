"""`smdebug demo`: what a run tells, on two networks that train for a few seconds."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from smdebug.cli.options import help_text
from smdebug.exceptions import SMDebugRuntimeError

_NEEDS = {"torch": "torch", "matplotlib": "'tornasole[demo]'"}


def demo(
    directory: Annotated[
        Path, typer.Argument(help="Where the runs and the picture go.", metavar="DIRECTORY")
    ] = Path("runs/demo"),
    steps: Annotated[
        int, typer.Option(help="How long each network trains.", metavar="N", min=20)
    ] = 1500,
) -> None:
    # The help is that below; a docstring here would be shown in its place.
    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        packages = " ".join(_NEEDS[name] for name in missing)
        raise SMDebugRuntimeError(
            f"the demo needs {' and '.join(_NEEDS)}, and there is no {' and no '.join(missing)} "
            f"here: pip install {packages}"
        )
    # Importing torch takes seconds, which no other command should.
    from smdebug.cli.demo.program import run

    run(directory, steps)


demo.__doc__ = help_text(
    "Trains two deep networks on the same data, one of which cannot learn, and shows what their "
    "runs tell about it.",
    "smdebug demo",
    "smdebug demo runs/mine --steps 500",
)
