"""The picture of how times grow: one small diagram per cost, both axes logarithmic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from benchmarks.figure import FLOOR, ORIGINAL
from benchmarks.growth import OURS, Curve

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS, WIDTH, HEIGHT, DOTS = 5, 2.2, 2.1, 90
# Sizes on a disk are in the tables.
TIMES = ("s", "µs")
LOOKS: dict[str, dict[str, Any]] = {
    OURS: {"color": "#0b6e99", "marker": "o", "linewidth": 2},
    ORIGINAL: {"color": "#c4601d", "marker": "s", "linestyle": "--"},
    FLOOR: {"color": "#888888", "marker": ".", "linestyle": ":"},
}


def draw(path: Path, growth: dict[str, list[Curve]]) -> None:
    """Writes the picture of all curves."""
    # Here: the table alone can be made without it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    diagrams: dict[tuple[str, str], list[Curve]] = {}
    for along, curves in growth.items():
        for curve in curves:
            if curve.unit in TIMES:
                diagrams.setdefault((along, f"{curve.what}, {curve.unit}"), []).append(curve)
    rows = max(1, math.ceil(len(diagrams) / COLUMNS))
    canvas = Canvas(figsize=(COLUMNS * WIDTH, rows * HEIGHT + 0.4), layout="constrained")
    FigureCanvasAgg(canvas)
    axes = list(canvas.subplots(rows, COLUMNS, squeeze=False).flat)
    for place, ((along, title), curves) in zip(axes, diagrams.items(), strict=False):
        diagram(place, along, title, curves)
    for place in axes[len(diagrams) :]:
        place.set_axis_off()
    handles = {line.get_label(): line for place in axes for line in place.get_lines()}
    known = {whose: handles[whose] for whose in LOOKS if whose in handles}
    canvas.legend(
        known.values(), known.keys(), loc="outside upper center", ncols=len(known), frameon=False
    )
    # No date and no version in it: the same figures make the same picture.
    canvas.savefig(path, dpi=DOTS, metadata={"Software": None})


def diagram(place: Any, along: str, title: str, curves: list[Curve]) -> None:
    """One cost, everybody's."""
    for curve in curves:
        medians = {size: value for size, value in curve.medians.items() if value > 0}
        look = LOOKS.get(curve.whose, {})
        place.plot(list(medians), list(medians.values()), label=curve.whose, markersize=4, **look)
    place.set_xscale("log")
    place.set_yscale("log")
    values = [value for curve in curves for value in curve.medians.values() if value > 0]
    if values:
        # At least two decades, so that flat looks flat.
        low, high = math.log10(min(values)) - 0.2, math.log10(max(values)) + 0.2
        more = max(0.0, 2 - (high - low)) / 2
        place.set_ylim(10 ** (low - more), 10 ** (high + more))
    sizes = sorted({size for curve in curves for size in curve.medians})
    if sizes and sizes[-1] < 100:
        place.set_xticks(sizes, [str(size) for size in sizes])
        place.minorticks_off()
    place.set_title(title.replace(", ", ",\n", 1), fontsize=8)
    place.set_xlabel(along, fontsize=8)
    place.tick_params(labelsize=7)
    place.grid(True, color="#dddddd", linewidth=0.5)
