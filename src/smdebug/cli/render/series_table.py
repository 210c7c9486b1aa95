"""The courses of tensors for a person: one plot, what is in each, some of the values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from smdebug.cli.render.line_plot import BROKEN, COLOURS, Curve, plot
from smdebug.cli.render.numbers import exact, short
from smdebug.cli.render.terminal import harmless
from smdebug.mode_keys import ModeKeys
from smdebug.trials.grid import spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.trials.curves import Curve as Series

_ROWS = 12
_PLOT_ROWS = 12


def draw_courses(
    found: list[Series], mode: ModeKeys, width: int, brief: bool = False, whose: str = ""
) -> RenderableType:
    """Draws some courses.

    Args:
        found: at most as many as a plot can hold.
        mode: the numbering of their steps.
        width: of the terminal.
        brief: without the table of values.
        whose: the worker, where there are several.
    """
    several = len({each.mode for each in found}) > 1
    curves = [
        Curve(_label(each, several), each.steps, each.values, COLOURS[number])
        for number, each in enumerate(found)
    ]
    title = _title(found, mode, whose)
    parts: list[RenderableType] = [plot(curves, title, width, _PLOT_ROWS)]
    parts += [Text(""), _summary(curves)]
    if not brief and len({each.name for each in found}) == 1:
        parts += [Text(""), _values(found)]
    return Group(*parts)


def _label(series: Series, several: bool) -> str:
    return f"{series.name} ({series.mode.name.lower()})" if several else series.name


def _title(found: list[Series], mode: ModeKeys, whose: str) -> Text:
    """What is drawn: which number of which tensor, over which steps, of which worker."""
    names = list(dict.fromkeys(each.name for each in found))
    what = harmless(names[0]) if len(names) == 1 else f"{len(names)} tensors"
    title = Text.assemble((what, "bold"))
    for reduction in sorted({each.reduction for each in found if each.reduction is not None}):
        saved = {each.saved for each in found if each.reduction == reduction}
        how = "" if all(saved) else " (some computed)" if any(saved) else " (computed)"
        title.append(f", {reduction}{how}")
    of = "" if mode is ModeKeys.GLOBAL else f" of mode {mode.name.lower()}"
    return title.append(f", over the steps{of}{whose and f', {harmless(whose)}'}")


def _summary(curves: list[Curve]) -> Table:
    """What is in each curve, in its colour."""
    broken = any(not np.isfinite(each.values).all() for each in curves)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("tensor", overflow="fold")
    names = ["steps", "min", "max", "mean", "last", *(["NaN", "Inf"] if broken else [])]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for each in curves:
        finite = each.values[np.isfinite(each.values)]
        # Of finite values alone; scaled, because a sum may be larger than any number.
        scale = max(float(np.abs(finite).max()), 1.0) if len(finite) else 1.0
        numbers = (
            [float(finite.min()), float(finite.max()), float((finite / scale).mean() * scale)]
            if len(finite)
            else []
        )
        last = [float(each.values[-1])] if len(each.values) else []
        cells = [*(_number(value, short) for value in numbers), *[Text("-")] * (3 - len(numbers))]
        cells += [*(_number(value, short) for value in last), *[Text("-")] * (1 - len(last))]
        counts = [int(np.isnan(each.values).sum()), int(np.isinf(each.values).sum())]
        if broken:
            cells += [Text(str(count), BROKEN if count else "") for count in counts]
        mark = Text("━━", each.colour)
        table.add_row(mark, Text(harmless(each.label)), str(len(each.steps)), *cells)
    return table


def _values(found: list[Series]) -> Table:
    """Some steps: the first, the last, some between; and where it begins not to be finite."""
    several = len(found) > 1
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("step", justify="right")
    if several:
        table.add_column("mode")
    table.add_column("value", justify="right")
    rows = []
    for each in found:
        rows += [
            (int(each.steps[place]), each.mode.name.lower(), float(each.values[place]))
            for place in _places(each)
        ]
    for step, mode, value in sorted(rows, key=lambda row: row[0]):
        table.add_row(str(step), *([mode] if several else []), _number(value))
    return table


def _places(series: Series) -> list[int]:
    broken = np.flatnonzero(~np.isfinite(series.values)).tolist()
    return sorted({*spread(len(series.steps), _ROWS), *broken[:1], *broken[-1:]})


def _number(value: float, written: Callable[[float], str] = exact) -> Text:
    return Text(written(value), "" if np.isfinite(value) else BROKEN)
