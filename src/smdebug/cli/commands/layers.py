"""`smdebug layers`: a reduction of every layer at some steps, as a table of colours."""

from __future__ import annotations

from typing import Annotated

import typer

from smdebug.cli.options import AsJson, Follow, ModeName, RunPath, WorkerName, help_text


def layers(
    run: RunPath,
    reduction: Annotated[
        str, typer.Option("--reduction", help="Which number: l2, mean ...", metavar="NAME")
    ] = "l2",
    collection: Annotated[
        str | None,
        typer.Option(help="Tensors of this collection.", show_default="gradients, else weights"),
    ] = None,
    regex: Annotated[
        str | None, typer.Option(help="Tensors in whose name this is found.", metavar="R")
    ] = None,
    mode: ModeName = None,
    worker: WorkerName = None,
    steps: Annotated[
        int | None,
        typer.Option(help="So many steps, evenly spread.", metavar="N", min=1),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="So many tensors, evenly spread.", metavar="N", min=1),
    ] = None,
    go_on: Follow = False,
    as_json: AsJson = False,
) -> None:
    # The help is that below; a docstring here would be shown in its place.
    from smdebug.cli.follow import follow
    from smdebug.cli.open_run import mode_named, open_run, require_mode
    from smdebug.cli.render.layer_table import LayerTable
    from smdebug.cli.render.terminal import console, print_json
    from smdebug.reductions import canonical_reduction
    from smdebug.trials.choice import regex_of, require_worker

    name = canonical_reduction(reduction)
    wanted = mode_named(mode)
    trial = open_run(run)
    require_worker(trial, worker)
    pattern = regex_of("--regex", regex)
    view = LayerTable(trial, name, collection, pattern, wanted, worker, steps, rows, go_on)
    if go_on:
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
    "Shows a number of every layer at some steps as a table of colours: tensors down, in the "
    "order of their execution, steps across.",
    "smdebug layers runs/one",
    "smdebug layers runs/one --collection weights --reduction abs_max --mode train",
    "smdebug layers runs/one --regex 'layer[1-4].*bias' --steps 4 --follow",
)
