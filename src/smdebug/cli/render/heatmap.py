"""Numbers on background colors by order of magnitude."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from smdebug.cli.render.numbers import short

if TYPE_CHECKING:
    from smdebug.reductions import Array

# From small to large.
_COLORS = ["#313695", "#4575b4", "#74add1", "#abd9e9", "#fee090", "#fdae61", "#f46d43", "#d73027"]
_DARK = {"#313695", "#4575b4", "#d73027"}
_NON_FINITE = "bold #ffffff on #b5179e"
_ZERO = "#ffffff on #444444"


class Heatmap:
    """A color scale for magnitudes, logarithmic.

    Args:
        lowest: the power of ten at which the first color begins.
        highest: the power of ten at which the last color ends.

    Example:
        >>> Heatmap.of(np.array([1e-7, 3.0])).exponents
        (-7, 1)
    """

    def __init__(self, lowest: int, highest: int) -> None:
        self.exponents = lowest, max(highest, lowest + 1)
        span = self.exponents[1] - lowest
        # Whole orders of magnitude per color, so that the legend can label its start.
        self._width = math.ceil(span / len(_COLORS))
        count = math.ceil(span / self._width)
        indices = np.linspace(0, len(_COLORS) - 1, count).round().astype(int)
        self._colors = [_COLORS[index] for index in indices]

    @classmethod
    def of(cls, values: Array) -> Heatmap:
        """Return the scale that covers some values."""
        sizes = np.abs(values[np.isfinite(values) & (values != 0)])
        if not len(sizes):
            return cls(0, 1)
        low, high = math.log10(float(sizes.min())), math.log10(float(sizes.max()))
        return cls(math.floor(low), math.floor(high) + 1)

    def style(self, value: float) -> str:
        """Return the style, text and background color, of a number."""
        if not math.isfinite(value):
            return _NON_FINITE
        if value == 0:
            return _ZERO
        index = int((math.log10(abs(value)) - self.exponents[0]) // self._width)
        return _on(self._colors[min(max(index, 0), len(self._colors) - 1)])

    def cell(
        self, value: float | None, width: int, text: str | None = None, mark: str = " "
    ) -> Text:
        """Return a cell with a number on its color, or a dot if there is none.

        Args:
            value: the number.
            width: of the cell.
            text: shown instead of the number.
            mark: a character after it.
        """
        if value is None:
            return Text(f"{'·':>{width - 1}} ", "dim")
        shown = short(value) if text is None else text
        return Text(f"{shown:>{width - 1}}{mark}", self.style(value))

    def legend(self, non_finite: bool = True) -> Text:
        """Return the legend: the value at which each color begins.

        Args:
            non_finite: include the color of NaN and Inf.
        """
        line = Text.assemble((" 0 ", _ZERO), " ")
        for number, color in enumerate(self._colors):
            line.append(f" {_power(self.exponents[0] + number * self._width)} ", _on(color))
        return line.append(" ").append(" NaN Inf ", _NON_FINITE) if non_finite else line


def _on(color: str) -> str:
    return f"{'#ffffff' if color in _DARK else '#000000'} on {color}"


def _power(exponent: int) -> str:
    return str(10**exponent) if 0 <= exponent <= 2 else f"1e{exponent}"
