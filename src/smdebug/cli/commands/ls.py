"""`smdebug ls`: list runs."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from smdebug.cli.options import AsJson, help_text


class Order(str, Enum):
    """The sort order: by path ascending, otherwise descending."""

    path = "path"
    time = "time"
    size = "size"
    steps = "steps"
    findings = "findings"


def ls(
    location: Annotated[str, typer.Argument(help="A directory or a URL.", metavar="DIR")] = ".",
    as_json: AsJson = False,
    sort: Annotated[
        Order, typer.Option("--sort", help="The sort order; descending, except for path.")
    ] = Order.path,
) -> None:
    # The help is below; a docstring here would replace it.
    import dataclasses

    from smdebug.cli.render.run_list import print_runs
    from smdebug.cli.render.terminal import print_json, print_message
    from smdebug.cli.run_summaries import summarize_runs
    from smdebug.trials.run_summary import DAMAGED

    summaries = summarize_runs(location, sort.value)
    if as_json:
        print_json([dataclasses.asdict(run) for run in summaries])
    elif summaries:
        print_runs(summaries)
    if not summaries:
        print_message(f"no runs found below {location}")
    damaged = sum(run.state == DAMAGED for run in summaries)
    if damaged:
        print_message(
            f"{damaged} of {len(summaries)} runs {'is' if damaged == 1 else 'are'} damaged; "
            "smdebug check RUN lists what"
        )


ls.__doc__ = help_text(
    "List the runs below a directory or a URL: steps, tensors, size, state and findings.",
    "smdebug ls runs",
    "smdebug ls s3://bucket/experiments --sort time",
    "smdebug ls runs --json",
)
