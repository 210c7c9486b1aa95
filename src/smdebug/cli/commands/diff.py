"""`smdebug diff`: find where two runs start to differ."""

from __future__ import annotations

from typing import Annotated

import typer

from smdebug.cli.options import AsJson, ModeName, help_text


def diff(
    run1: Annotated[str, typer.Argument(help="One run: a directory or a URL.", metavar="RUN1")],
    run2: Annotated[str, typer.Argument(help="The other one.", metavar="RUN2")],
    rtol: Annotated[
        float, typer.Option(help="The relative tolerance, as a fraction of RUN2's values.")
    ] = 1e-5,
    atol: Annotated[float, typer.Option(help="The absolute tolerance.")] = 1e-8,
    mode: ModeName = None,
    tensor: Annotated[
        str | None,
        typer.Option(help="Only tensors whose name matches this regex.", metavar="REGEX"),
    ] = None,
    reduction: Annotated[
        str | None, typer.Option(help="Compare only this reduction: l2, mean, abs_max.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="List every difference, not only the first ones.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    from dataclasses import asdict

    from smdebug.cli.open_run import open_run, parse_mode
    from smdebug.cli.render.progress import Bar
    from smdebug.cli.render.run_diff import print_difference, print_unmatched
    from smdebug.cli.render.terminal import console, print_json
    from smdebug.trials.compare.difference import compare_runs

    chosen = parse_mode(mode)
    first, second = open_run(run1), open_run(run2)
    with Bar() as progress:
        found = compare_runs(
            first, second, rtol=rtol, atol=atol, mode=chosen, tensor=tensor,
            reduction=reduction, everything=everything, tell=progress.update,
        )  # fmt: skip
    if as_json:
        print_json({"equal": found.first is None, **asdict(found)})
    else:
        print_difference(found, console())
        for run, only in ((run1, found.only_first), (run2, found.only_second)):
            print_unmatched(run, only, console())
    raise typer.Exit(0 if found.first is None else 1)


diff.__doc__ = help_text(
    "Find the first step and tensor, in execution order, at which two runs differ.\n\n"
    "Numbers are compared as by numpy.isclose with equal_nan: values if both runs have them, else "
    "reductions. Exits with status 1 if the runs differ.",
    "smdebug diff runs/one runs/two",
    "smdebug diff runs/one runs/two --tensor ^gradient/ --rtol 1e-3 --all",
    "smdebug diff runs/one runs/two --mode train --reduction l2 --json",
)
