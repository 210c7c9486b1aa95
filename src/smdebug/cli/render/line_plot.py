"""Curves over steps, drawn in a terminal with the dots of braille characters."""

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

COLOURS = [
    "bright_cyan", "bright_yellow", "bright_magenta", "bright_green",
    "bright_blue", "orange1", "white", "hot_pink",
]  # fmt: skip
# More curves are a knot.
MOST_CURVES = len(COLOURS)
# What a number that no plot can show looks like, in its own row.
BROKEN = "bold bright_red"
# The dots of a braille character, from the top down, left and right.
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_BRAILLE = 0x2800
# The numbers beside the axis, and the axis; wider where a number is.
_MARGIN = 9
# From here on only logarithms show the small values beside the large ones.
_LOG_FROM = 1e3


@dataclass(frozen=True)
class Curve:
    """A course of numbers.

    Attributes:
        label: what it is called.
        steps: ascending.
        values: as many; those that are not finite get a row of marks below the plot.
        colour: of the line.
    """

    label: str
    steps: Array
    values: Array
    colour: str = COLOURS[0]


def plot(
    curves: list[Curve], title: Text, width: int, rows: int = 10, zero: bool = False
) -> RenderableType:
    """Draws curves into one frame.

    Args:
        curves: at most `MOST_CURVES`.
        title: the line above.
        width: of everything, in characters.
        rows: of the plot alone.
        zero: the axis begins at zero.

    Example:
        >>> import numpy as np
        >>> from rich.console import Console
        >>> curve = Curve("loss", np.arange(3), np.array([4.0, 2.0, 1.0]))
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
            line.append(chr(_BRAILLE + dots), curves[owner].colour if owner >= 0 else "")
        lines.append(line)
    lines += [*frame.marks(curves), Text(f"{'└':>{margin}}{'─' * frame.columns}", "dim")]
    first, last = str(frame.first), str(frame.last)
    ends = first if frame.first == frame.last else f"{first}{last:>{frame.columns - len(first)}}"
    lines.append(Text(" " * margin + ends, "dim"))
    return Group(*lines)


def legend(curves: list[Curve]) -> Text:
    """The names of the curves, in their colours."""
    return Text("  ").join(Text(f"━━ {harmless(each.label)}", each.colour) for each in curves)


class _Frame:
    """Where a step and a value lie: two dots across and four down for every character."""

    def __init__(self, curves: list[Curve], width: int, rows: int, zero: bool) -> None:
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
        # Halved, because the distance between two numbers may be larger than any number.
        return np.log10(values) if self.log else np.asarray(values, np.float64) / 2

    def heights(self, values: Array) -> Array:
        """The rows of dots of finite values, from the top."""
        low, high = self._scaled(np.array([self.low, self.high]))
        share = (self._scaled(values) - low) / (high - low)
        rows: Array = np.rint((1 - share) * (4 * self.rows - 1)).astype(np.int64)
        return rows

    def places(self, steps: Array) -> Array:
        """The columns of dots of steps."""
        reach = max(self.last - self.first, 1)
        return np.rint((steps - self.first) / reach * (2 * self.columns - 1)).astype(np.int64)

    def labels(self) -> dict[int, str]:
        """The numbers beside some rows."""
        middle = float(np.sqrt(self.low) * np.sqrt(self.high)) if self.log else (
            self.low / 2 + self.high / 2
        )  # fmt: skip
        if self.rows < 3:
            return {0: short(self.high), self.rows - 1: short(self.low)}
        return {0: short(self.high), self.rows // 2: short(middle), self.rows - 1: short(self.low)}

    def dots(self, curve: Curve) -> Iterator[tuple[int, int]]:
        """Every dot of a curve: what falls into one column is drawn from its lowest to highest."""
        values = np.asarray(curve.values, np.float64)
        kept = np.flatnonzero(np.isfinite(values))
        if not len(kept):
            return
        x, y = self.places(curve.steps[kept]), self.heights(values[kept])
        starts = np.flatnonzero(np.concatenate([[True], x[1:] != x[:-1]]))
        ends = np.append(starts[1:], len(x)) - 1
        low, high = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
        columns = zip(x[starts].tolist(), low.tolist(), high.tolist(), strict=True)
        for column, top, bottom in columns:
            yield from ((column, row) for row in range(top, bottom + 1))
        for before, after in zip(ends[:-1].tolist(), starts[1:].tolist(), strict=True):
            # Where something not finite lies between, there is no line.
            if kept[after] - kept[before] == 1:
                yield from _line(int(x[before]), int(y[before]), int(x[after]), int(y[after]))

    def marks(self, curves: list[Curve]) -> list[Text]:
        """A row for every kind of number that has no place in the plot."""
        lines = []
        for name, mark, test in (
            ("NaN", "x", np.isnan),
            ("Inf", "▲", np.isposinf),
            ("-Inf", "▼", np.isneginf),
        ):
            hits = [
                self.places(each.steps[test(np.asarray(each.values, np.float64))]) // 2
                for each in curves
            ]
            columns = set(np.concatenate([np.zeros(0, np.int64), *hits]).tolist())
            if columns:
                row = "".join(mark if column in columns else " " for column in range(self.columns))
                axis = Text(f"{name:>{self.margin - 2}} ┤", "dim")
                lines.append(Text.assemble(axis, (row.rstrip(), BROKEN)))
        return lines


def _line(x0: int, y0: int, x1: int, y1: int) -> Iterator[tuple[int, int]]:
    count = max(abs(x1 - x0), abs(y1 - y0))
    for number in range(1, count):
        yield x0 + round((x1 - x0) * number / count), y0 + round((y1 - y0) * number / count)
