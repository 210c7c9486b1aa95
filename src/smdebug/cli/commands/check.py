"""`smdebug check`: verify the files of a run."""

from __future__ import annotations

import typer

from smdebug.cli.options import AsJson, RunPath, help_text


def check(run: RunPath, as_json: AsJson = False) -> None:
    from dataclasses import asdict

    from smdebug.cli.open_run import open_run_store
    from smdebug.cli.render.check_report import print_report
    from smdebug.cli.render.progress import Bar
    from smdebug.cli.render.terminal import console, print_json
    from smdebug.storage.check.run import check_run

    store = open_run_store(run)
    with Bar("files") as progress:
        report = check_run(store, progress.update)
    if as_json:
        print_json(asdict(report))
    else:
        print_report(report, console())
    raise typer.Exit(1 if report.damaged else 0)


check.__doc__ = help_text(
    "Verify every checksum and every row of a run, and list what is damaged.\n\n"
    "The job may be running. Exits with status 1 if anything is damaged.",
    "smdebug check runs/one",
    "smdebug check s3://bucket/job/debug-output --json",
)
