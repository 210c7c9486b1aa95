"""Time series of tensors: one plot, statistics of each, some values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from smdebug.cli.render.line_plot import COLORS, NON_FINITE, PlotCurve, plot
from smdebug.cli.render.numbers import exact, short
from smdebug.cli.render.terminal import harmless
from smdebug.mode_keys import ModeKeys
from smdebug.trials.plot.heatmap import spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from smdebug.trials.curves import Curve as Series

_ROWS = 12
_PLOT_ROWS = 12


def draw_series(
    found: list[Series], mode: ModeKeys, width: int, brief: bool = False, worker: str = ""
) -> RenderableType:
    """Draw time series.

    Args:
        found: at most `MOST_CURVES`.
        mode: the numbering of their steps.
        width: of the terminal.
        brief: without the table of values.
        worker: the worker, if there are several.
    """
    several = len({each.mode for each in found}) > 1
    curves = [
        PlotCurve(_label(each, several), each.steps, each.values, COLORS[number])
        for number, each in enumerate(found)
    ]
    title = _title(found, mode, worker)
    parts: list[RenderableType] = [plot(curves, title, width, _PLOT_ROWS)]
    parts += [Text(""), _summary(curves)]
    if not brief and len({each.name for each in found}) == 1:
        parts += [Text(""), _values(found)]
    return Group(*parts)


def _label(series: Series, several: bool) -> str:
    return f"{series.name} ({series.mode.name.lower()})" if several else series.name


def _title(found: list[Series], mode: ModeKeys, worker: str) -> Text:
    """Return the title: tensor, reduction, mode and worker."""
    names = list(dict.fromkeys(each.name for each in found))
    what = harmless(names[0]) if len(names) == 1 else f"{len(names)} tensors"
    title = Text.assemble((what, "bold"))
    for reduction in sorted({each.reduction for each in found if each.reduction is not None}):
        saved = {each.saved for each in found if each.reduction == reduction}
        how = "" if all(saved) else " (some computed)" if any(saved) else " (computed)"
        title.append(f", {reduction}{how}")
    of = "" if mode is ModeKeys.GLOBAL else f" of mode {mode.name.lower()}"
    return title.append(f", over the steps{of}{worker and f', {harmless(worker)}'}")


def _summary(curves: list[PlotCurve]) -> Table:
    """Return statistics of each curve."""
    non_finite = any(not np.isfinite(each.values).all() for each in curves)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("tensor", overflow="fold")
    names = ["steps", "min", "max", "mean", "last", *(["NaN", "Inf"] if non_finite else [])]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for each in curves:
        finite = each.values[np.isfinite(each.values)]
        # Of finite values; scaled, because their sum may overflow.
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
        if non_finite:
            cells += [Text(str(count), NON_FINITE if count else "") for count in counts]
        mark = Text("━━", each.color)
        table.add_row(mark, Text(harmless(each.label)), str(len(each.steps)), *cells)
    return table


def _values(found: list[Series]) -> Table:
    """Return a table of evenly spread steps, and the first and last NaN or Inf."""
    several = len(found) > 1
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("step", justify="right")
    if several:
        table.add_column("mode")
    table.add_column("value", justify="right")
    rows = []
    for each in found:
        rows += [
            (int(each.steps[row]), each.mode.name.lower(), float(each.values[row]))
            for row in _rows_shown(each)
        ]
    for step, mode, value in sorted(rows, key=lambda row: row[0]):
        table.add_row(str(step), *([mode] if several else []), _number(value))
    return table


def _rows_shown(series: Series) -> list[int]:
    non_finite = np.flatnonzero(~np.isfinite(series.values)).tolist()
    return sorted({*spread(len(series.steps), _ROWS), *non_finite[:1], *non_finite[-1:]})


def _number(value: float, written: Callable[[float], str] = exact) -> Text:
    return Text(written(value), "" if np.isfinite(value) else NON_FINITE)
