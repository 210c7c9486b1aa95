"""The differences of two runs: the first one, a table, notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from smdebug.cli.render.terminal import harmless

if TYPE_CHECKING:
    from rich.console import Console

    from smdebug.trials.compare.alignment import Unmatched
    from smdebug.trials.compare.difference import Difference, RunDifference


def print_difference(found: RunDifference, out: Console) -> None:
    """Print the first difference, then the following ones."""
    if found.first is None:
        out.print(Text(f"no difference; {_format_counts(found)}", "bold green"), soft_wrap=True)
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
    more = "" if found.complete else "; there may be more, --all compares all steps"
    out.print(f"{_format_counts(found)}{more}", soft_wrap=True)


def _first(each: Difference, many: bool) -> str:
    worker = f", worker {each.worker}" if many else ""
    position = f"{_ordinal(each.place)} of {each.of} in the step"
    return (
        f"first difference: step {each.step}, tensor {each.tensor}{worker} ({position}): "
        f"{_amount(each)}"
    )


def _amount(each: Difference) -> str:
    """Format by how much a tensor differs."""
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


def _format_counts(found: RunDifference) -> str:
    skipped = f", {found.skipped:,} have nothing to compare" if found.skipped else ""
    return f"tensors compared, step by step: {found.compared:,}{skipped}"


def print_unmatched(run: str, only: dict[str, Unmatched], out: Console) -> None:
    """Print the steps, tensors and workers that only one run has."""
    parts = []
    for what, each in only.items():
        some = ", ".join(map(str, each.some[:3]))
        more = ", ..." if each.count > 3 else ""
        if each.count:
            kind = what.removesuffix("s") if each.count == 1 else what
            parts.append(f"{each.count:,} {kind}" + (f" ({some}{more})" if some else ""))
    if parts:
        text = harmless(f"note: only in {run}: {'; '.join(parts)}")
        out.print(Text(text, "yellow"), soft_wrap=True)
