"""`smdebug ls`: the runs below a place, a line for each."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from smdebug.cli.options import AsJson, help_text


class Order(str, Enum):
    """What the lines are sorted by: the path ascending, else the largest first."""

    path = "path"
    time = "time"
    size = "size"
    steps = "steps"
    findings = "findings"


def ls(
    place: Annotated[
        str, typer.Argument(help="Where to look: a directory or a URL.", metavar="DIR")
    ] = ".",
    as_json: AsJson = False,
    sort: Annotated[
        Order, typer.Option("--sort", help="The order of the lines; the largest first.")
    ] = Order.path,
) -> None:
    # The help is that below; a docstring here would be shown in its place.
    import dataclasses

    from smdebug.cli.render.run_list import print_runs
    from smdebug.cli.render.terminal import print_json, say
    from smdebug.cli.run_summaries import summarise_runs
    from smdebug.trials.summary import DAMAGED

    summaries = summarise_runs(place, sort.value)
    if as_json:
        print_json([dataclasses.asdict(run) for run in summaries])
    elif summaries:
        print_runs(summaries)
    if not summaries:
        say(f"no runs found below {place}")
    damaged = sum(run.state == DAMAGED for run in summaries)
    if damaged:
        say(
            f"{damaged} of {len(summaries)} runs {'is' if damaged == 1 else 'are'} damaged; "
            "smdebug check RUN says what is left"
        )


ls.__doc__ = help_text(
    "Lists the runs below a directory or a URL: steps, tensors, size, whether the job still "
    "writes, and what rules found.",
    "smdebug ls runs",
    "smdebug ls s3://bucket/experiments --sort time",
    "smdebug ls runs --json",
)
