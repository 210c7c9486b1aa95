"""What was found, drawn in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from demo.look import VANISHED, Array, Findings

if TYPE_CHECKING:
    from rich.console import RenderableType

COLOURS = {"sigmoid": "bright_magenta", "relu": "bright_cyan"}
COLUMNS, ROWS = 66, 9
HEAT_STEPS = 4
# From vanished to large, over the decades of gradient norms.
HEAT = ["#313695", "#4575b4", "#74add1", "#abd9e9", "#fee090", "#fdae61", "#f46d43", "#d73027"]
COLDEST, HOTTEST = -8, 0
# The dots of a braille character, from the top down, left and right.
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def loss_plot(all_found: list[Findings]) -> RenderableType:
    """The loss of every network over the steps, as one plot."""
    courses = [found.course(2 * COLUMNS) for found in all_found]
    top = max(float(course.max()) for course in courses)
    cells = [[(0, "")] * COLUMNS for _ in range(ROWS)]
    for found, course in zip(all_found, courses, strict=True):
        draw(cells, course / top, COLOURS[found.network])
    labels = {0: top, ROWS // 2: top / 2, ROWS - 1: 0.0}
    lines = [Text.assemble(("Loss", "bold"), " over the training steps   ", legend(all_found))]
    for number, row in enumerate(cells):
        label = f"{labels[number]:5.2f} ┤" if number in labels else "      │"
        dots = [(chr(0x2800 + dots), colour) for dots, colour in row]
        lines.append(Text.assemble((label, "dim"), *dots))
    last = len(all_found[0].losses) - 1
    lines.append(Text(f"      └{'─' * COLUMNS}\n       0{last:>{COLUMNS - 1}}", "dim"))
    return Group(*lines)


def draw(cells: list[list[tuple[int, str]]], heights: Array, colour: str) -> None:
    """Draws a curve of heights from 0 to 1; every cell has two dots across and four down."""
    across, down = 2 * COLUMNS, 4 * ROWS
    at = np.interp(np.arange(across), np.linspace(0, across - 1, len(heights)), heights)
    ys = [round((1 - height) * (down - 1)) for height in at]
    for x, (before, y) in enumerate(zip([ys[0], *ys], ys, strict=False)):
        # Down from, or up to, the height before, so that a steep curve has no holes.
        for each in {y, *range(before, y, 1 if y > before else -1)}:
            dots, _ = cells[each // 4][x // 2]
            cells[each // 4][x // 2] = (dots | DOTS[each % 4][x % 2], colour)


def legend(all_found: list[Findings]) -> Text:
    return Text("  ").join(
        Text(f"━━ {found.network}", COLOURS[found.network]) for found in all_found
    )


def heat_table(all_found: list[Findings]) -> RenderableType:
    """The norms of the gradients, layers down, steps across, the networks side by side."""
    table = Table(box=None, padding=0, pad_edge=False, header_style="dim")
    table.add_column("layer", justify="right")
    names = Text("     ")
    for found in all_found:
        places = found.some_steps(HEAT_STEPS)
        table.add_column("  ")
        for place in places:
            table.add_column(f"{found.steps[place]} ", justify="right", min_width=7)
        table.add_column("moved", justify="right", min_width=7)
        width = 7 * len(places) + 7
        names.append("  " + found.network.ljust(width), f"bold {COLOURS[found.network]}")
    for layer in range(all_found[0].layers):
        table.add_row(str(layer + 1), *heat_row(all_found, layer))
    title = Text.assemble(
        ("Gradient of each layer", "bold"), ", log10 of its L2 norm, at some steps"
    )
    return Group(title, Text(""), names, table, Text(""), scale())


def heat_row(all_found: list[Findings], layer: int) -> list[Text]:
    """The cells of one layer."""
    cells = []
    for found in all_found:
        norms = [found.norms[layer, place] for place in found.some_steps(HEAT_STEPS)]
        moved = f"{found.moved[layer]:.0e}" if found.moved[layer] else "not"
        cells += [Text(""), *[heat(norm) for norm in norms], Text(moved)]
    return cells


def heat(norm: float) -> Text:
    """A number on a colour that says how large the gradient is."""
    decade = np.log10(norm) if norm > 0 else -np.inf
    share = (decade - COLDEST) / (HOTTEST - COLDEST)
    place = int(np.clip(share * len(HEAT), 0, len(HEAT) - 1))
    letters = "#ffffff" if place in (0, 1, len(HEAT) - 1) else "#000000"
    number = f"{decade:.1f}" if norm > 0 else "zero"
    mark = "*" if norm < VANISHED else " "
    return Text(f"{number:>6}{mark}", f"{letters} on {HEAT[place]}")


def scale() -> Text:
    """What the colours, the mark and the last column mean."""
    return Text.assemble(
        "       1e-8 ",
        *[("   ", f"on {colour}") for colour in HEAT],
        f" 1    * vanished: below {VANISHED:.0e}\n",
        "       moved: how far the weights have come, relative to their size",
    )
