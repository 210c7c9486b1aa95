"""`smdebug demo`: debug two networks that train for a few seconds."""

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
        Path, typer.Argument(help="The directory for the runs and the figure.", metavar="DIRECTORY")
    ] = Path("runs/demo"),
    steps: Annotated[
        int, typer.Option(help="How many steps each network trains.", metavar="N", min=20)
    ] = 1500,
) -> None:
    # The help is below; a docstring here would replace it.
    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        packages = " ".join(_NEEDS[name] for name in missing)
        raise SMDebugRuntimeError(
            f"the demo needs {' and '.join(_NEEDS)}; missing: {', '.join(missing)}. "
            f"pip install {packages}"
        )
    # Imports torch, which takes seconds.
    from smdebug.cli.demo.program import run

    run(directory, steps)


demo.__doc__ = help_text(
    "Train two deep networks on the same data, one of which cannot learn, and show why.",
    "smdebug demo",
    "smdebug demo runs/mine --steps 500",
)
