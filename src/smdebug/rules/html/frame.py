"""The frame of a chart: axes, grid and legend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smdebug.markup import drawing, escape, label, tag
from smdebug.rules.html.scale import Scale, tick_texts, ticks
from smdebug.rules.html.style import COLORS

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 520.0, 280.0
_TOP, _RIGHT, _BOTTOM = 10.0, 16.0, 40.0
# About what a digit takes at the size of the axis' texts.
CHARACTER = 6.4


@dataclass(frozen=True)
class Frame:
    """The part of a chart that the data is drawn into.

    Attributes:
        x: where numbers of the horizontal axis lie.
        y: where those of the vertical one lie.
        axes: the grid and the texts, as markup.
    """

    x: Scale
    y: Scale
    axes: str

    @classmethod
    def around(
        cls,
        x_range: tuple[float, float],
        y_range: tuple[float, float],
        x_label: str,
        whole_x: bool = False,
        whole_y: bool = False,
    ) -> Frame:
        """A frame for numbers within two ranges."""
        rows = ticks(*y_range, 5, whole_y)
        texts = tick_texts(rows)
        left = 14 + CHARACTER * max((len(text) for text in texts), default=1)
        x = Scale(*x_range, left, WIDTH - _RIGHT)
        y = Scale(*y_range, HEIGHT - _BOTTOM, _TOP)
        parts = []
        for value, text in zip(rows, texts, strict=True):
            place = y(value)
            parts.append(tag("line", class_="grid", x1=left, x2=x.end, y1=place, y2=place))
            parts.append(label(text, left - 8, place + 4, class_="end"))
        columns = ticks(*x_range, 7, whole_x)
        column_texts = tick_texts(columns)
        # Long numbers get fewer places.
        every = 1 + int(sum(CHARACTER * len(text) + 12 for text in column_texts) // (x.end - left))
        for value, text in list(zip(columns, column_texts, strict=True))[::every]:
            parts.append(label(text, x(value), y.start + 17, class_="middle"))
        parts.append(tag("line", class_="axis", x1=left, x2=x.end, y1=y.start, y2=y.start))
        parts.append(label(x_label, (left + x.end) / 2, HEIGHT - 4, class_="middle name"))
        return cls(x, y, "".join(parts))

    def draw(self, content: str, title: str) -> str:
        """The chart, with content drawn over the grid."""
        return drawing(self.axes + content, WIDTH, HEIGHT, title)


def legend(names: Sequence[tuple[int, str]]) -> str:
    """What the colours mean; nothing when there is one only."""
    if len(names) < 2:
        return ""
    items = [f'<li><i class="b{color % COLORS}"></i>{escape(name)}</li>' for color, name in names]
    return f'<ul class="legend">{"".join(items)}</ul>'
