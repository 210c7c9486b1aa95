"""Plots of curves over steps, drawn in a terminal with braille characters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group
from rich.text import Text

from smdebug.cli.render.numbers import short
from smdebug.cli.render.terminal import harmless

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from smdebug.reductions import Array

COLORS = [
    "bright_cyan", "bright_yellow", "bright_magenta", "bright_green",
    "bright_blue", "orange1", "white", "hot_pink",
]  # fmt: skip
# The colors of more curves could not be distinguished.
MOST_CURVES = len(COLORS)
# The style of NaN and Inf.
NON_FINITE = "bold bright_red"
# The bits of the dots of a braille character: four rows of two.
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_BRAILLE = 0x2800
# The width of axis labels and axis; wider for long labels.
_MARGIN = 9
# The ratio of values from which the axis is logarithmic.
_LOG_FROM = 1e3


@dataclass(frozen=True)
class PlotCurve:
    """A curve of a plot.

    Attributes:
        label: its name in the legend.
        steps: ascending.
        values: one per step; NaN and Inf are marked in rows below the plot.
        color: of the line.
    """

    label: str
    steps: Array
    values: Array
    color: str = COLORS[0]


def plot(
    curves: list[PlotCurve], title: Text, width: int, rows: int = 10, zero: bool = False
) -> RenderableType:
    """Draw curves in one plot.

    Args:
        curves: at most `MOST_CURVES`.
        title: the line above it.
        width: in characters, with labels.
        rows: without title and axis.
        zero: start the axis at zero.

    Example:
        >>> import numpy as np
        >>> from rich.console import Console
        >>> curve = PlotCurve("loss", np.arange(3), np.array([4.0, 2.0, 1.0]))
        >>> Console(width=30).print(plot([curve], Text("loss"), 30, rows=2))  # doctest: +SKIP
    """
    frame = _Frame(curves, width, rows, zero)
    margin = frame.margin
    lines = [Text.assemble(title, "  (logarithmic)" if frame.log else "")]
    cells = np.zeros((rows, frame.columns), np.int64)
    owners = np.full((rows, frame.columns), -1)
    for number, curve in enumerate(curves):
        for x, y in frame.dots(curve):
            cells[y // 4, x // 2] |= _DOTS[y % 4, x % 2]
            owners[y // 4, x // 2] = number
    labels = frame.labels()
    for row in range(rows):
        axis = f"{labels[row]:>{margin - 2}} ┤" if row in labels else f"{'│':>{margin}}"
        line = Text.assemble((axis, "dim"))
        for dots, owner in zip(cells[row].tolist(), owners[row].tolist(), strict=True):
            line.append(chr(_BRAILLE + dots), curves[owner].color if owner >= 0 else "")
        lines.append(line)
    lines += [*frame.marks(curves), Text(f"{'└':>{margin}}{'─' * frame.columns}", "dim")]
    first, last = str(frame.first), str(frame.last)
    ends = first if frame.first == frame.last else f"{first}{last:>{frame.columns - len(first)}}"
    lines.append(Text(" " * margin + ends, "dim"))
    return Group(*lines)


def legend(curves: list[PlotCurve]) -> Text:
    """Return the labels of the curves, in their colors."""
    return Text("  ").join(Text(f"━━ {harmless(each.label)}", each.color) for each in curves)


class _Frame:
    """The coordinates of a plot: every character is two dots wide and four dots high."""

    def __init__(self, curves: list[PlotCurve], width: int, rows: int, zero: bool) -> None:
        self.rows = rows
        steps = [each.steps for each in curves if len(each.steps)]
        self.first = min((int(each[0]) for each in steps), default=0)
        self.last = max((int(each[-1]) for each in steps), default=0)
        values = [np.asarray(each.values, np.float64) for each in curves]
        finite = np.concatenate([[], *(each[np.isfinite(each)] for each in values)])
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        self.log = not zero and low > 0 and high / low > _LOG_FROM
        self.low, self.high = (min(low, 0.0) if zero else low), high
        if self.low == self.high:
            room = abs(self.low) / 2 or 0.5
            self.low, self.high = self.low - room, self.high + room
        self.margin = max(_MARGIN, *(len(label) + 2 for label in self.labels().values()))
        self.columns = max(width - self.margin, 10)

    def _scaled(self, values: Array) -> Array:
        # Halved: the difference of two floats may overflow.
        return np.log10(values) if self.log else np.asarray(values, np.float64) / 2

    def heights(self, values: Array) -> Array:
        """Return the rows of dots of finite values, from the top."""
        low, high = self._scaled(np.array([self.low, self.high]))
        share = (self._scaled(values) - low) / (high - low)
        rows: Array = np.rint((1 - share) * (4 * self.rows - 1)).astype(np.int64)
        return rows

    def columns_of(self, steps: Array) -> Array:
        """Return the columns of dots of steps."""
        span = max(self.last - self.first, 1)
        return np.rint((steps - self.first) / span * (2 * self.columns - 1)).astype(np.int64)

    def labels(self) -> dict[int, str]:
        """Return the axis labels by row."""
        middle = float(np.sqrt(self.low) * np.sqrt(self.high)) if self.log else (
            self.low / 2 + self.high / 2
        )  # fmt: skip
        if self.rows < 3:
            return {0: short(self.high), self.rows - 1: short(self.low)}
        return {0: short(self.high), self.rows // 2: short(middle), self.rows - 1: short(self.low)}

    def dots(self, curve: PlotCurve) -> Iterator[tuple[int, int]]:
        """Yield the dots of a curve; within a column from the lowest to the highest value."""
        values = np.asarray(curve.values, np.float64)
        kept = np.flatnonzero(np.isfinite(values))
        if not len(kept):
            return
        x, y = self.columns_of(curve.steps[kept]), self.heights(values[kept])
        starts = np.flatnonzero(np.concatenate([[True], x[1:] != x[:-1]]))
        ends = np.append(starts[1:], len(x)) - 1
        low, high = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
        columns = zip(x[starts].tolist(), low.tolist(), high.tolist(), strict=True)
        for column, top, bottom in columns:
            yield from ((column, row) for row in range(top, bottom + 1))
        for before, after in zip(ends[:-1].tolist(), starts[1:].tolist(), strict=True):
            # NaN and Inf interrupt the line.
            if kept[after] - kept[before] == 1:
                yield from _line(int(x[before]), int(y[before]), int(x[after]), int(y[after]))

    def marks(self, curves: list[PlotCurve]) -> list[Text]:
        """Return a row of marks each for NaN, Inf and -Inf, where there are any."""
        lines = []
        for name, mark, test in (
            ("NaN", "x", np.isnan),
            ("Inf", "▲", np.isposinf),
            ("-Inf", "▼", np.isneginf),
        ):
            hits = [
                self.columns_of(each.steps[test(np.asarray(each.values, np.float64))]) // 2
                for each in curves
            ]
            columns = set(np.concatenate([np.zeros(0, np.int64), *hits]).tolist())
            if columns:
                row = "".join(mark if column in columns else " " for column in range(self.columns))
                axis = Text(f"{name:>{self.margin - 2}} ┤", "dim")
                lines.append(Text.assemble(axis, (row.rstrip(), NON_FINITE)))
        return lines


def _line(x0: int, y0: int, x1: int, y1: int) -> Iterator[tuple[int, int]]:
    count = max(abs(x1 - x0), abs(y1 - y0))
    for number in range(1, count):
        yield x0 + round((x1 - x0) * number / count), y0 + round((y1 - y0) * number / count)
