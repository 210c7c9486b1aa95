"""A confusion matrix as a grid of cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.markup import cut, drawing, escape, label, tag
from smdebug.rules.html.frame import CHARACTER, WIDTH
from smdebug.rules.html.scale import short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdebug.trials.index_rows import Ints

_LARGEST_CELL = 72.0
_HEAD = 40.0
# A cell that is narrower has no room for a number.
_TEXT_CELL = 26.0
# The fill that is dark enough for light text.
_DARK = 0.55


def matrix_chart(counts: Ints, names: Sequence[str], title: str) -> str:
    """Draws counts: a row for each label, a column for each prediction.

    The fill is the share of the row, so that rare classes are seen as well as others.

    Args:
        counts: a square of counts, labels by predictions.
        names: the classes.
        title: what a person who cannot see it is told.
    """
    shown = [cut(name, 10) for name in names]
    left = 34 + CHARACTER * max(len(name) for name in shown)
    size = min(_LARGEST_CELL, (WIDTH - left - 4) / len(names))
    sums = counts.sum(axis=1)
    parts = [
        label("predicted", left + size * len(names) / 2, 14, class_="middle name"),
        label("label", 0, 0, class_="middle name",
              transform=f"translate(12 {_HEAD + size * len(names) / 2:.1f}) rotate(-90)"),
    ]  # fmt: skip
    fits = max(len(name) for name in shown) * CHARACTER < size
    for row, name in enumerate(shown):
        middle = size * row + size / 2
        parts.append(label(name, left - 8, _HEAD + middle + 4, class_="end"))
        if fits:
            parts.append(label(name, left + middle, _HEAD - 8, class_="middle"))
        for column in range(len(names)):
            count = int(counts[row, column])
            share = count / sums[row] if sums[row] else 0.0
            x, y = left + size * column, _HEAD + size * row
            hint = f"label {names[row]}, predicted {names[column]}: {count:,} ({share:.1%})"
            parts.append(
                tag("rect", tag("title", escape(hint)), class_="cell", x=x, y=y, width=size - 1,
                    height=size - 1, style=f"--share:{share:.3f}", rx=2)
            )  # fmt: skip
            if size >= _TEXT_CELL:
                kind = "middle count on" if share > _DARK else "middle count"
                text = _count(count, size)
                parts.append(label(text, x + size / 2, y + size / 2 + 4, class_=kind))
    return drawing("".join(parts), WIDTH, _HEAD + size * len(names) + 4, title)


def _count(count: int, size: float) -> str:
    """A count that fits into a cell."""
    text = f"{count:,}"
    for unit, divisor in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if len(text) * CHARACTER <= size - 4:
            break
        text = f"{short(float(f'{count / divisor:.2g}'))}{unit}"
    return text
