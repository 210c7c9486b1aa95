"""`smdebug diff`: where two runs begin to differ."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from smdebug.cli.open_run import mode_named, open_run
from smdebug.cli.options import AsJson, ModeName, help_text
from smdebug.cli.render.progress import Bar
from smdebug.cli.render.terminal import console, harmless, print_json
from smdebug.trials.difference import compare_runs

if TYPE_CHECKING:
    from rich.console import Console

    from smdebug.trials.alignment import OnlyOne
    from smdebug.trials.difference import Difference, RunDifference


def diff(
    run1: Annotated[str, typer.Argument(help="One run: a directory or a URL.", metavar="RUN1")],
    run2: Annotated[str, typer.Argument(help="The other one.", metavar="RUN2")],
    rtol: Annotated[
        float, typer.Option(help="How much numbers may differ, relative to RUN2's.")
    ] = 1e-5,
    atol: Annotated[float, typer.Option(help="How much numbers may differ in any case.")] = 1e-8,
    mode: ModeName = None,
    tensor: Annotated[
        str | None, typer.Option(help="Only tensors whose names it is found in.", metavar="REGEX")
    ] = None,
    reduction: Annotated[
        str | None, typer.Option(help="Compare only this reduction: l2, mean, abs_max.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="List every difference; go on behind the first.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    chosen = mode_named(mode)
    first, second = open_run(run1), open_run(run2)
    with Bar() as progress:
        found = compare_runs(
            first, second, rtol=rtol, atol=atol, mode=chosen, tensor=tensor,
            reduction=reduction, everything=everything, tell=progress.tell,
        )  # fmt: skip
    if as_json:
        print_json({"equal": found.first is None, **asdict(found)})
    else:
        _show(found, console())
        for run, only in ((run1, found.only_first), (run2, found.only_second)):
            _show_only(run, only, console())
    raise typer.Exit(0 if found.first is None else 1)


diff.__doc__ = help_text(
    "Finds the first step and tensor, in the order of computing, where two runs differ.\n\n"
    "Numbers are compared as numpy.isclose does, NaN being equal to NaN: values where both runs "
    "have them, else reductions. Ends with 1 when the runs differ.",
    "smdebug diff runs/one runs/two",
    "smdebug diff runs/one runs/two --tensor ^gradient/ --rtol 1e-3 --all",
    "smdebug diff runs/one runs/two --mode train --reduction l2 --json",
)


def _show(found: RunDifference, out: Console) -> None:
    if found.first is None:
        out.print(Text(f"no difference; {_compared(found)}", "bold green"), soft_wrap=True)
        return
    many = len({each.worker for each in found.differences}) > 1
    out.print(Text(harmless(_first(found.first, many)), "bold red"), soft_wrap=True)
    if len(found.differences) > 1:
        out.print("then:")
        titles = ["step", "tensor", *(["worker"] if many else []), "what differs"]
        table = Table(*titles, header_style="bold")
        for each in found.differences[1:]:
            worker = [each.worker] if many else []
            cells = [str(each.step), each.tensor, *worker, _amount(each)]
            table.add_row(*(Text(harmless(cell), overflow="fold") for cell in cells))
        out.print(table)
    more = "" if found.complete else "; there may be more, --all goes on to the end"
    out.print(f"{_compared(found)}{more}", soft_wrap=True)


def _first(each: Difference, many: bool) -> str:
    worker = f", worker {each.worker}" if many else ""
    place = f"{_ordinal(each.place)} of {each.of} in the step"
    return (
        f"first difference: step {each.step}, tensor {each.tensor}{worker} ({place}): "
        f"{_amount(each)}"
    )


def _amount(each: Difference) -> str:
    """By how much a tensor differs, in words."""
    by = each.mismatch
    sides = f"{_number(by.first)} against {_number(by.second)}"
    if each.what != "value":
        return f"{each.what} {sides}"
    if by.elements == 1:
        return sides if by.largest is None else f"{sides}, |a-b| {by.largest:.6g}"
    counted = f"{by.differing} of {by.elements} elements differ"
    if by.largest is None:
        return f"{sides} at {list(by.at)}, {counted}"
    if by.largest != by.largest:
        return f"{sides} at {list(by.at)}, {counted}"
    return f"max |a-b| {by.largest:.6g} at {list(by.at)}, {counted}"


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"


def _compared(found: RunDifference) -> str:
    skipped = f", {found.skipped:,} have nothing to compare" if found.skipped else ""
    return f"tensors compared, step by step: {found.compared:,}{skipped}"


def _show_only(run: str, only: dict[str, OnlyOne], out: Console) -> None:
    told = []
    for what, each in only.items():
        some = ", ".join(map(str, each.some[:3]))
        more = ", ..." if each.count > 3 else ""
        if each.count:
            kind = what.removesuffix("s") if each.count == 1 else what
            told.append(f"{each.count:,} {kind}" + (f" ({some}{more})" if some else ""))
    if told:
        text = harmless(f"note: only in {run}: {'; '.join(told)}")
        out.print(Text(text, "yellow"), soft_wrap=True)
