"""`smdebug show`: a run at a glance, or the course of its tensors."""

from __future__ import annotations

from typing import Annotated

import typer

from smdebug.cli.options import AsJson, Follow, ModeName, RunPath, WorkerName, help_text

ReductionName = Annotated[
    str | None,
    typer.Option("--reduction", help="Which number: l2, mean, abs_max ...", metavar="NAME"),
]


def show(
    run: RunPath,
    tensor: Annotated[
        str | None,
        typer.Argument(help="A tensor; or a shell pattern or regex of several.", metavar="TENSOR"),
    ] = None,
    reduction: ReductionName = None,
    mode: ModeName = None,
    worker: WorkerName = None,
    go_on: Follow = False,
    as_json: AsJson = False,
    last: Annotated[
        int | None, typer.Option("--last", help="The last N steps only.", metavar="N", min=1)
    ] = None,
) -> None:
    # The help is that below; a docstring here would be shown in its place.
    from smdebug.cli.follow import follow
    from smdebug.cli.open_run import mode_named, open_run, require_mode
    from smdebug.cli.render.progress import Bar
    from smdebug.cli.render.run_view import RunView
    from smdebug.cli.render.terminal import console, print_json
    from smdebug.reductions import canonical_reduction
    from smdebug.trials.choice import require_worker

    name = None if reduction is None else canonical_reduction(reduction)
    wanted = mode_named(mode)
    trial = open_run(run)
    require_worker(trial, worker)
    if not go_on:
        require_mode(trial, wanted)
    view = RunView(trial, tensor, name, wanted, worker, last, go_on)
    if go_on:
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
    "Shows a run: what was saved in it, what rules found, its losses. With TENSOR: its course "
    "over the steps, as a plot and a table.",
    "smdebug show runs/one",
    "smdebug show runs/one CrossEntropyLoss_output_0 --follow",
    "smdebug show runs/one 'gradient/*weight' --reduction l2 --last 100",
    "smdebug show s3://bucket/job/debug-output loss --json",
)
