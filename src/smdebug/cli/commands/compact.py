"""`smdebug compact`: merge the small index files of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from smdebug.cli.options import AsJson, RunPath, help_text


def compact(
    run: RunPath,
    remove_orphans: Annotated[
        bool,
        typer.Option(
            "--remove-orphans",
            help="Also remove event files without an index row, and temporary files.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    from rich.text import Text

    from smdebug.cli.open_run import open_run_store
    from smdebug.cli.render.compaction import compaction_lines
    from smdebug.cli.render.progress import Bar
    from smdebug.cli.render.terminal import console, harmless, print_json
    from smdebug.storage.v2.compaction import compact_run

    store = open_run_store(run)
    with Bar("workers") as progress:
        done = compact_run(store, remove_orphans, progress.update)
    if as_json:
        print_json(vars(done))
        return
    for line in compaction_lines(done, remove_orphans):
        console().print(Text(harmless(line)), soft_wrap=True)


compact.__doc__ = help_text(
    "Merge the small index files of a run whose job was killed before it closed the run.\n\n"
    "A run with few files opens faster. Does nothing while a process on this machine writes to the "
    "run. If it is interrupted, the run stays readable.",
    "smdebug compact runs/one",
    "smdebug compact s3://bucket/job/debug-output --json",
)
