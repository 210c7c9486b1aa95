"""Bars: one for each of many things, or for each interval of a histogram."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smdebug.markup import cut, drawing, escape, label, tag
from smdebug.rules.html.frame import CHARACTER, WIDTH, Frame, legend
from smdebug.rules.html.scale import Scale, short
from smdebug.rules.html.style import COLORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdebug.trials.index_rows import Floats

_ROW = 22.0
_NAME_LENGTH = 26
_MOST_INTERVALS = 40


def bar_chart(bars: Sequence[tuple[str, float]], title: str) -> str:
    """Draws a horizontal bar for each name; bars of negative numbers go to the left.

    Args:
        bars: names and finite numbers, from top to bottom.
        title: what a person who cannot see it is told.
    """
    names = [cut(name, _NAME_LENGTH) for name, _ in bars]
    texts = [short(value) for _, value in bars]
    # Fonts differ: with room for one that is wide.
    left = 12 + 1.15 * CHARACTER * max(len(name) for name in names)
    room = 10 + CHARACTER * max(len(text) for text in texts)
    low, high = min(0.0, *(value for _, value in bars)), max(0.0, *(value for _, value in bars))
    # Where there are bars to the left their numbers need room there too.
    begin = left + (room if low < 0 else 0)
    scale = Scale(low, high if high > low else low + 1, begin, WIDTH - room)
    zero = scale(0.0)
    parts = []
    for row, ((name, value), shown, text) in enumerate(zip(bars, names, texts, strict=True)):
        top = row * _ROW
        end = scale(value)
        hint = tag("title", escape(f"{name}: {text}"))
        parts.append(label(shown, left - 8, top + 15, class_="end item"))
        parts.append(
            tag("rect", hint, class_="f1" if value < 0 else "f0", x=min(zero, end), y=top + 4,
                width=max(abs(end - zero), 1.0), height=_ROW - 8, rx=2)
        )  # fmt: skip
        place, kind = (end - 6, "end") if value < 0 else (end + 6, "start")
        parts.append(label(text, place, top + 15, class_=kind))
    height = len(bars) * _ROW + 4
    parts.append(tag("line", class_="axis", x1=zero, x2=zero, y1=0, y2=height))
    return drawing("".join(parts), WIDTH, height, title)


def histogram(groups: Sequence[tuple[str, Floats]], title: str, x_label: str) -> str:
    """Draws how often numbers fall into intervals; several groups lie over each other.

    The 0.5 % of the numbers that are smallest and the 0.5 % that are largest lie in the first and
    the last interval if they are far away from the others.

    Args:
        groups: names and their numbers, at least one of which is finite.
        title: what a person who cannot see it is told.
        x_label: what the numbers are.
    """
    finite = [(name, values[np.isfinite(values)]) for name, values in groups]
    together = np.concatenate([values for _, values in finite])
    edges = _edges(together)
    counts = [np.histogram(np.clip(each, edges[0], edges[-1]), edges)[0] for _, each in finite]
    most = max(int(each.max()) for each in counts)
    across = (float(edges[0]), float(edges[-1]))
    frame = Frame.around(across, (0.0, most * 1.05), x_label, whole_y=True)
    parts = []
    for color, ((name, _), count) in enumerate(zip(finite, counts, strict=True)):
        for place in np.flatnonzero(count).tolist():
            start, end = frame.x(float(edges[place])), frame.x(float(edges[place + 1]))
            top = frame.y(float(count[place]))
            span = f"{short(float(edges[place]))} to {short(float(edges[place + 1]))}"
            who = f"{name}, " if len(finite) > 1 else ""
            hint = tag("title", escape(f"{who}{span}: {int(count[place]):,}"))
            gap = 1.0 if end - start > 4 else 0.0
            parts.append(
                tag("rect", hint, class_=f"f{color % COLORS} see", x=start, y=top,
                    width=max(end - start - gap, 0.5), height=frame.y.start - top)
            )  # fmt: skip
    names = [(color, name) for color, (name, _) in enumerate(finite)]
    chart = legend(names) + frame.draw("".join(parts), title)
    outside = int(((together < edges[0]) | (together > edges[-1])).sum())
    if outside:
        chart += f'<p class="note">{outside:,} that lie further out are in the outer bars.</p>'
    return chart


def _edges(values: Floats) -> Floats:
    low, high = (float(each) for each in np.quantile(values, [0.005, 0.995]))
    smallest, largest = float(values.min()), float(values.max())
    # A short tail is shown as it is.
    if smallest >= low - 0.25 * (high - low):
        low = smallest
    if largest <= high + 0.25 * (high - low):
        high = largest
    if not high - low > 1e-12 * max(abs(low), abs(high)):
        room = 0.05 * abs(low) or 0.5
        low, high = low - room, high + room
    intervals = int(np.clip(np.sqrt(len(values)) * 1.5, 5, _MOST_INTERVALS))
    edges: Floats = np.linspace(low, high, intervals + 1)
    return edges
