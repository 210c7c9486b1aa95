"""`smdebug export`: write a run in the format of another tool."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from smdebug.cli.options import ModeName, help_text
from smdebug.exceptions import SMDebugValueError

_HELP = help_text(
    "Export a run to the format of another tool.\n\n"
    "parquet and csv: a table with a row per worker, step and tensor. safetensors and npz: a file "
    "of raw tensors per step. tensorboard: TensorBoard files. v1: a run that smdebug 1.0 reads. "
    "v2: a run in the current format.\n\n"
    "`smdebug export tensorboard RUN LOGDIR` is short for `smdebug export RUN LOGDIR --format "
    "tensorboard`.",
    "smdebug export runs/one --format parquet",
    "smdebug export runs/one losses.csv --format csv --collection losses",
    "smdebug export runs/one out --format npz --tensor weight$ --steps 0:1000",
    "smdebug export s3://bucket/job/debug-output runs/job --format v2",
    "smdebug export tensorboard runs/one board/one",
)


class Format(str, Enum):
    """The formats of an export."""

    PARQUET = "parquet"
    CSV = "csv"
    SAFETENSORS = "safetensors"
    NPZ = "npz"
    TENSORBOARD = "tensorboard"
    V1 = "v1"
    V2 = "v2"


def export(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="The run: a directory or a URL.", metavar="RUN")],
    out: Annotated[
        str | None,
        typer.Argument(
            help="A file, a directory (for parquet with a trailing slash) or a URL; RUN.FORMAT in "
            "the current directory if not given.",
            metavar="OUT",
        ),
    ] = None,
    format: Annotated[Format | None, typer.Option(help="The format to write.")] = None,
    tensor: Annotated[
        str | None,
        typer.Option(help="Only tensors whose name matches this regex.", metavar="REGEX"),
    ] = None,
    collection: Annotated[
        str | None, typer.Option(help="Only tensors of this collection.", metavar="NAME")
    ] = None,
    mode: ModeName = None,
    worker: Annotated[
        str | None, typer.Option(help="Only what this worker saved.", metavar="NAME")
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(help="Only these steps, without END.", metavar="FIRST:END"),
    ] = None,
    values: Annotated[
        bool, typer.Option("--values", help="For parquet: also raw values, as lists of doubles.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    # The help is _HELP; a docstring here would replace it.
    from smdebug.cli.export_run import export_summary, write_run
    from smdebug.cli.open_run import open_run, parse_mode
    from smdebug.cli.render.progress import Bar
    from smdebug.cli.render.terminal import print_json, print_message
    from smdebug.trials.selection import Selection

    run, out, chosen = _parse_arguments(
        [run, *([] if out is None else [out]), *context.args], format
    )
    if values and chosen is not Format.PARQUET:
        raise SMDebugValueError(f"--values requires --format parquet, got {chosen.value}")
    limits, wanted = _parse_steps(steps), parse_mode(mode)
    trial = open_run(run)
    selection = Selection(
        trial, tensor=tensor, collection=collection, mode=wanted, worker=worker, steps=limits
    )
    target = out or _default_out(run, chosen)
    with Bar() as progress:
        done = write_run(chosen.value, selection, target, values, force, progress.update)
    if as_json:
        print_json({"run": run, "format": chosen.value, **done})
    for line in export_summary(chosen.value, done):
        print_message(line)


export.__doc__ = _HELP


def _parse_arguments(words: list[str], format: Format | None) -> tuple[str, str | None, Format]:
    """Return the run, the output and the format."""
    short = len(words) == 3 and words[0] == Format.TENSORBOARD.value
    if short and format in (None, Format.TENSORBOARD):
        return words[1], words[2], Format.TENSORBOARD
    if len(words) > 2:
        raise SMDebugValueError(
            f"expected RUN and OUT, got {len(words)} arguments: {', '.join(words)}"
        )
    if format is None:
        known = ", ".join(each.value for each in Format)
        raise SMDebugValueError(
            f"--format must be one of {known}, got none; TensorBoard files are also written by "
            "smdebug export tensorboard RUN LOGDIR"
        )
    return words[0], words[1] if len(words) == 2 else None, format


def _parse_steps(text: str | None) -> tuple[int | None, int | None] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d*):(\d*)", text.strip(), re.ASCII)
    if match is None:
        raise SMDebugValueError(
            f"--steps must be FIRST:END, either of which may be omitted, got {text!r}"
        )
    first, end = (int(part) if part else None for part in match.groups())
    if first is not None and end is not None and first >= end:
        raise SMDebugValueError(f"--steps must be FIRST:END with FIRST < END, got {text!r}")
    return first, end


def _default_out(run: str, format: Format) -> str:
    name = run.rstrip("/").rpartition("/")[2] if "://" in run else Path(run).resolve().name
    return f"{name or 'run'}.{format.value}"
