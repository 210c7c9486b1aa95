"""Where the numbers of several groups lie: a line for most of them, a box for the middle half."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smdebug.markup import cut, drawing, escape, label, tag
from smdebug.rules.html.frame import CHARACTER, WIDTH
from smdebug.rules.html.scale import Scale, short, tick_texts, ticks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdebug.trials.index_rows import Floats

_ROW = 24.0
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def range_chart(
    groups: Sequence[tuple[str, Floats]], across: tuple[float, float], title: str, x_label: str
) -> str:
    """Draws for each group the range of 5 to 95 %, the middle half and the median.

    Args:
        groups: names and finite numbers, from top to bottom.
        across: the range of the axis.
        title: what a person who cannot see it is told.
        x_label: what the numbers are.
    """
    names = [cut(name, 20) for name, _ in groups]
    left = 12 + 1.05 * CHARACTER * max(len(name) for name in names)
    scale = Scale(*across, left, WIDTH - 16)
    bottom = len(groups) * _ROW + 4
    columns = ticks(*across, 5)
    parts = []
    for value, text in zip(columns, tick_texts(columns), strict=True):
        place = scale(value)
        parts.append(tag("line", class_="grid", x1=place, x2=place, y1=0, y2=bottom))
        parts.append(label(text, place, bottom + 16, class_="middle"))
    for row, ((name, values), shown) in enumerate(zip(groups, names, strict=True)):
        quantiles = [float(each) for each in np.quantile(values, _QUANTILES)]
        low, begin, middle, end, high = (scale(each) for each in quantiles)
        y = row * _ROW + _ROW / 2
        said = ", ".join(
            f"{share:.0%}: {short(each)}" for share, each in zip(_QUANTILES, quantiles, strict=True)
        )
        content = [
            tag("title", escape(f"{name}: {len(values):,} samples; {said}")),
            tag("line", class_="line s0 thin", x1=low, x2=high, y1=y, y2=y),
            tag("rect", class_="f0 see", x=begin, y=y - 6, width=max(end - begin, 1.0), height=12),
            tag("line", class_="median", x1=middle, x2=middle, y1=y - 8, y2=y + 8),
        ]
        parts.append(label(shown, left - 8, y + 4, class_="end item"))
        parts.append(tag("g", "".join(content)))
    parts.append(label(x_label, (left + WIDTH - 16) / 2, bottom + 36, class_="middle name"))
    return drawing("".join(parts), WIDTH, bottom + 42, title)
