"""Numbers on colours that say how large they are, decade by decade."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from smdebug.cli.render.numbers import short

if TYPE_CHECKING:
    from smdebug.reductions import Array

# From the smallest to the largest.
_COLOURS = ["#313695", "#4575b4", "#74add1", "#abd9e9", "#fee090", "#fdae61", "#f46d43", "#d73027"]
_DARK = {"#313695", "#4575b4", "#d73027"}
_BROKEN = "bold #ffffff on #b5179e"
_ZERO = "#ffffff on #444444"


class Heat:
    """Colours for magnitudes, on a logarithmic scale.

    Args:
        coldest: the decade, as an exponent of ten, from which on it is the first colour.
        hottest: the decade up to which it is the last one.

    Example:
        >>> Heat.of(np.array([1e-7, 3.0])).decades
        (-7, 1)
    """

    def __init__(self, coldest: int, hottest: int) -> None:
        self.decades = coldest, max(hottest, coldest + 1)
        reach = self.decades[1] - coldest
        # Whole decades for every colour, so that one can say where it begins.
        self._width = math.ceil(reach / len(_COLOURS))
        count = math.ceil(reach / self._width)
        places = np.linspace(0, len(_COLOURS) - 1, count).round().astype(int)
        self._colours = [_COLOURS[place] for place in places]

    @classmethod
    def of(cls, values: Array) -> Heat:
        """The scale on which some values are told apart."""
        sizes = np.abs(values[np.isfinite(values) & (values != 0)])
        if not len(sizes):
            return cls(0, 1)
        low, high = math.log10(float(sizes.min())), math.log10(float(sizes.max()))
        return cls(math.floor(low), math.floor(high) + 1)

    def style(self, value: float) -> str:
        """The colours of letters and ground for a number."""
        if not math.isfinite(value):
            return _BROKEN
        if value == 0:
            return _ZERO
        place = int((math.log10(abs(value)) - self.decades[0]) // self._width)
        return _on(self._colours[min(max(place, 0), len(self._colours) - 1)])

    def cell(
        self, value: float | None, width: int, text: str | None = None, mark: str = " "
    ) -> Text:
        """A number on its colour; a dot where there is none.

        Args:
            value: the number.
            width: of the cell.
            text: what stands there instead of the number.
            mark: a character behind it.
        """
        if value is None:
            return Text(f"{'·':>{width - 1}} ", "dim")
        shown = short(value) if text is None else text
        return Text(f"{shown:>{width - 1}}{mark}", self.style(value))

    def legend(self, broken: bool = True) -> Text:
        """What the colours mean: where each begins.

        Args:
            broken: NaN and Inf have a colour, too.
        """
        line = Text.assemble((" 0 ", _ZERO), " ")
        for number, colour in enumerate(self._colours):
            line.append(f" {_power(self.decades[0] + number * self._width)} ", _on(colour))
        return line.append(" ").append(" NaN Inf ", _BROKEN) if broken else line


def _on(colour: str) -> str:
    return f"{'#ffffff' if colour in _DARK else '#000000'} on {colour}"


def _power(decade: int) -> str:
    return str(10**decade) if 0 <= decade <= 2 else f"1e{decade}"
