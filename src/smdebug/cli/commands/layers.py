"""`smdebug layers`: a heatmap of a reduction, layers by steps."""

from __future__ import annotations

from typing import Annotated

import typer

from smdebug.cli.options import AsJson, Follow, ModeName, RunPath, WorkerName, help_text


def layers(
    run: RunPath,
    reduction: Annotated[
        str,
        typer.Option("--reduction", help="The reduction: l2, mean, abs_max ...", metavar="NAME"),
    ] = "l2",
    collection: Annotated[
        str | None,
        typer.Option(
            help="Only tensors of this collection.", show_default="gradients, else weights"
        ),
    ] = None,
    regex: Annotated[
        str | None, typer.Option(help="Only tensors whose name matches this regex.", metavar="R")
    ] = None,
    mode: ModeName = None,
    worker: WorkerName = None,
    steps: Annotated[
        int | None,
        typer.Option(help="How many steps, evenly spread.", metavar="N", min=1),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="How many tensors, evenly spread.", metavar="N", min=1),
    ] = None,
    following: Follow = False,
    as_json: AsJson = False,
) -> None:
    # The help is below; a docstring here would replace it.
    from smdebug.cli.follow import follow
    from smdebug.cli.open_run import open_run, parse_mode, require_mode
    from smdebug.cli.render.layer_table import LayerTable
    from smdebug.cli.render.terminal import console, print_json
    from smdebug.reductions import canonical_reduction
    from smdebug.trials.select import regex_of, require_worker

    name = canonical_reduction(reduction)
    wanted = parse_mode(mode)
    trial = open_run(run)
    require_worker(trial, worker)
    pattern = regex_of("--regex", regex)
    view = LayerTable(trial, name, collection, pattern, wanted, worker, steps, rows, following)
    if following:
        view.wait()
        follow(trial, view.draw, lambda: view.lines(as_json))
        return
    require_mode(trial, wanted)
    if as_json:
        print_json(view.as_json())
    else:
        output = console()
        output.print(view.draw(output.width))


layers.__doc__ = help_text(
    "Show a reduction of every layer as a heatmap: tensors down, in execution order, and steps "
    "across.",
    "smdebug layers runs/one",
    "smdebug layers runs/one --collection weights --reduction abs_max --mode train",
    "smdebug layers runs/one --regex 'layer[1-4].*bias' --steps 4 --follow",
)
