"""`smdebug show`: show a run, or time series of its tensors."""

from __future__ import annotations

from typing import Annotated

import typer

from smdebug.cli.options import AsJson, Follow, ModeName, RunPath, WorkerName, help_text

ReductionName = Annotated[
    str | None,
    typer.Option("--reduction", help="The reduction: l2, mean, abs_max ...", metavar="NAME"),
]


def show(
    run: RunPath,
    tensor: Annotated[
        str | None,
        typer.Argument(help="The name of a tensor, a shell pattern or a regex.", metavar="TENSOR"),
    ] = None,
    reduction: ReductionName = None,
    mode: ModeName = None,
    worker: WorkerName = None,
    following: Follow = False,
    as_json: AsJson = False,
    last: Annotated[
        int | None, typer.Option("--last", help="Only the last N steps.", metavar="N", min=1)
    ] = None,
) -> None:
    # The help is below; a docstring here would replace it.
    from smdebug.cli.follow import follow
    from smdebug.cli.open_run import open_run, parse_mode, require_mode
    from smdebug.cli.render.progress import Bar
    from smdebug.cli.render.run_view import RunView
    from smdebug.cli.render.terminal import console, print_json
    from smdebug.reductions import canonical_reduction
    from smdebug.trials.select import require_worker

    name = None if reduction is None else canonical_reduction(reduction)
    wanted = parse_mode(mode)
    trial = open_run(run)
    require_worker(trial, worker)
    if not following:
        require_mode(trial, wanted)
    view = RunView(trial, tensor, name, wanted, worker, last, following)
    if following:
        view.wait()
        follow(trial, view.draw, lambda: view.lines(as_json))
    elif as_json:
        print_json(view.as_json())
    else:
        output = console()
        with Bar("tensors"):
            drawn = view.draw(output.width)
        output.print(drawn)


show.__doc__ = help_text(
    "Show a run: its tensors, findings and losses. With TENSOR: its values over the steps, as a "
    "plot and a table.",
    "smdebug show runs/one",
    "smdebug show runs/one CrossEntropyLoss_output_0 --follow",
    "smdebug show runs/one 'gradient/*weight' --reduction l2 --last 100",
    "smdebug show s3://bucket/job/debug-output loss --json",
)
