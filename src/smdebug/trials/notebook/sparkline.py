"""A small curve in a line of text, as SVG that needs nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smdebug.markup import escape, tag

if TYPE_CHECKING:
    from smdebug.trials.curves import Floats

WIDTH, HEIGHT = 220, 40
# More points than pixels are not seen.
_MOST = 220
# Both are read on white and on black.
_LINE, _BAD = "#3b82f6", "#ef4444"


def sparkline(values: Floats, title: str) -> str:
    """Draws numbers in their order; those that are not finite are red marks at the bottom.

    Args:
        values: the numbers; of many the extremes of stretches are drawn.
        title: what a person reads who cannot see it, or points at it.
    """
    values = _thinned(values)
    finite = np.isfinite(values)
    xs = np.linspace(2, WIDTH - 2, len(values)) if len(values) > 1 else np.array([WIDTH / 2])
    ys = _heights(values, finite)
    parts = [tag("title", escape(title))]
    good = np.flatnonzero(finite)
    for piece in np.split(good, np.flatnonzero(np.diff(good) > 1) + 1) if len(good) else []:
        if len(piece) == 1:
            at = int(piece[0])
            parts.append(tag("circle", cx=float(xs[at]), cy=float(ys[at]), r=1.5, fill=_LINE))
            continue
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs[piece], ys[piece], strict=True))
        parts.append(tag("polyline", points=points, fill="none", stroke=_LINE, stroke_width=1.5))
    for at in np.flatnonzero(~finite).tolist():
        x = float(xs[at])
        parts.append(tag("line", x1=x, x2=x, y1=HEIGHT - 6, y2=HEIGHT, stroke=_BAD, stroke_width=2))
    return tag(
        "svg", "".join(parts), viewBox=f"0 0 {WIDTH} {HEIGHT}", width=WIDTH, height=HEIGHT,
        role="img", aria_label=title, style="vertical-align:middle",
    )  # fmt: skip


def _heights(values: Floats, finite: Floats) -> Floats:
    if not finite.any():
        return np.zeros(len(values))
    # In units in which the difference of any two is a number.
    small = np.where(finite, values, 0.0) / 4
    low, high = small[finite].min(), small[finite].max()
    share = (small - low) / (high - low) if high > low else np.full(len(values), 0.5)
    return np.asarray(HEIGHT - 8 - share * (HEIGHT - 12))


def _thinned(values: Floats) -> Floats:
    """Lowest and highest of every stretch, in their order; one that is not finite stays one."""
    if len(values) <= _MOST:
        return values
    kept: list[int] = []
    edges = np.linspace(0, len(values), _MOST // 2 + 1).astype(int)
    for first, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = values[first:end]
        bad = np.flatnonzero(~np.isfinite(part))
        # argmin and argmax of a stretch with NaN are that NaN; of one with infinity, that.
        pair = {int(part.argmin()), int(part.argmax())} | set(bad[:1].tolist())
        kept += [first + place for place in sorted(pair)]
    return values[kept]
