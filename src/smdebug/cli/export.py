"""`smdebug export`: a run in the formats of other tools."""

from __future__ import annotations

from typing import Annotated

import typer

from smdebug.cli.opening import open_run
from smdebug.cli.progress import Bar
from smdebug.cli.terminal import say
from smdebug.trials.tensorboard import export_tensorboard

export = typer.Typer(
    name="export", help="Write a run in the format of another tool.", no_args_is_help=True
)
# With one command only, typer would do without its name.
export.callback()(lambda: None)

_TENSORBOARD_HELP = (
    "Writes TensorBoard files of a run that was saved without them.\n\n"
    "Losses, metrics and scalars are scalars, and so are reductions; tensors that were saved "
    "whole are histograms. Each mode gets a directory in LOGDIR.\n\n"
    "Examples:\n\n"
    "    smdebug export tensorboard runs/one board/one && tensorboard --logdir board\n\n"
    "    smdebug export tensorboard s3://bucket/job/debug-output board/job\n\n"
)


@export.command(help=_TENSORBOARD_HELP)
def tensorboard(
    run: Annotated[str, typer.Argument(help="The run: a directory or a URL.", metavar="RUN")],
    logdir: Annotated[
        str, typer.Argument(help="Where to: a directory or a URL.", metavar="LOGDIR")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Replace TensorBoard files of a run in LOGDIR.")
    ] = False,
) -> None:
    trial = open_run(run)
    with Bar() as progress:
        done = export_tensorboard(trial, logdir, force, progress.tell)
    say(
        f"{done.scalars} scalars and {done.histograms} histograms of {done.steps} steps are in "
        f"{logdir}"
    )
