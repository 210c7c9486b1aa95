"""Curves over the rounds of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from smdebug.markup import escape, tag
from smdebug.rules.html.frame import Frame, legend
from smdebug.rules.html.scale import padded, short
from smdebug.rules.html.style import COLORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdebug.trials.index_rows import Floats

# More points than pixels are not seen.
_MOST_POINTS = 1000
_MOST_DOTS = 40
_MOST_HINTS = 400


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve.

    Attributes:
        name: what it is.
        rounds: its places, ascending.
        values: its values; gaps where they are not finite.
        color: the number of its colour.
        mark: the round to mark; None for none.
    """

    name: str
    rounds: Floats
    values: Floats
    color: int = 0
    mark: float | None = None


def line_chart(curves: Sequence[Curve], title: str, x_label: str = "round") -> str:
    """Draws curves into one chart.

    Args:
        curves: the curves; one without a finite value is left out.
        title: what a person who cannot see it is told.
        x_label: what stands below the horizontal axis.
    """
    shown = [curve for curve in curves if np.isfinite(curve.values).any()]
    if not shown:
        return '<p class="note">There is no finite value.</p>'
    finite = np.concatenate([curve.values[np.isfinite(curve.values)] for curve in shown])
    rounds = np.concatenate([curve.rounds for curve in shown])
    first, last = float(rounds.min()), float(rounds.max())
    across = (first, last) if last > first else (first - 0.5, first + 0.5)
    frame = Frame.around(across, padded(float(finite.min()), float(finite.max())), x_label, True)
    content = "".join(_curve(curve, frame) for curve in shown)
    names = [(curve.color, curve.name) for curve in shown]
    return legend(names) + frame.draw(content, title)


def _curve(curve: Curve, frame: Frame) -> str:
    color = curve.color % COLORS
    xs = frame.x.start + (curve.rounds - frame.x.low) * (
        (frame.x.end - frame.x.start) / (frame.x.high - frame.x.low)
    )
    ys = frame.y.start + (curve.values - frame.y.low) * (
        (frame.y.end - frame.y.start) / (frame.y.high - frame.y.low)
    )
    parts = []
    if curve.mark is not None:
        place = frame.x(curve.mark)
        parts.append(
            tag("line", class_="mark", x1=place, x2=place, y1=frame.y.end, y2=frame.y.start)
        )
    whole = np.flatnonzero(np.isfinite(ys))
    for piece in np.split(whole, np.flatnonzero(np.diff(whole) > 1) + 1):
        kept = _thinned(piece, ys)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs[kept], ys[kept], strict=True))
        parts.append(tag("polyline", class_=f"line s{color}", points=path))
    if len(whole) <= _MOST_HINTS:
        size = 3.0 if len(whole) <= _MOST_DOTS else 1.0
        for place in whole.tolist():
            at, value = float(curve.rounds[place]), float(curve.values[place])
            hint = tag("title", escape(f"{curve.name}, {at:g}: {short(value)}"))
            x, y = float(xs[place]), float(ys[place])
            # The dot is small; what the pointer meets is larger.
            dot = tag("circle", class_=f"f{color}", r=size, cx=x, cy=y)
            parts.append(tag("g", dot + tag("circle", hint, class_="hint", r=6, cx=x, cy=y)))
    return "".join(parts)


def _thinned(places: np.ndarray[tuple[int], np.dtype[np.int64]], ys: Floats) -> list[int]:
    """The first, last, highest and lowest point of every stretch."""
    if len(places) <= _MOST_POINTS:
        return [int(place) for place in places]
    kept: set[int] = set()
    for stretch in np.array_split(places, _MOST_POINTS // 4):
        highest, lowest = stretch[ys[stretch].argmin()], stretch[ys[stretch].argmax()]
        kept.update(int(each) for each in (stretch[0], highest, lowest, stretch[-1]))
    return sorted(kept)
