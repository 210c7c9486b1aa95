"""What was found, drawn in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from smdebug.cli.demo.look import VANISHED, Findings
from smdebug.cli.render.heatmap import Heat
from smdebug.cli.render.line_plot import Curve, legend, plot

if TYPE_CHECKING:
    from rich.console import RenderableType

COLOURS = {"sigmoid": "bright_magenta", "relu": "bright_cyan"}
WIDTH, ROWS = 75, 9
HEAT_STEPS = 4
CELL = 7
# From vanished to large.
HEAT = Heat(-8, 0)


def loss_plot(all_found: list[Findings]) -> RenderableType:
    """The loss of every network over the steps, as one plot."""
    curves = []
    for found in all_found:
        course = found.course(2 * WIDTH)
        steps = np.rint(np.linspace(0, len(found.losses) - 1, len(course)))
        curves.append(Curve(found.network, steps, course, COLOURS[found.network]))
    title = Text.assemble(("Loss", "bold"), " over the training steps   ", legend(curves))
    return plot(curves, title, WIDTH, ROWS, zero=True)


def heat_table(all_found: list[Findings]) -> RenderableType:
    """The norms of the gradients, layers down, steps across, the networks side by side."""
    table = Table(box=None, padding=0, pad_edge=False, header_style="dim")
    table.add_column("layer", justify="right")
    names = Text("     ")
    for found in all_found:
        places = found.some_steps(HEAT_STEPS)
        table.add_column("  ")
        for place in places:
            table.add_column(f"{found.steps[place]:>{CELL - 1}} ", min_width=CELL)
        table.add_column("moved", justify="right", min_width=CELL)
        width = CELL * len(places) + CELL
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
        norms = [float(found.norms[layer, place]) for place in found.some_steps(HEAT_STEPS)]
        moved = f"{found.moved[layer]:.0e}" if found.moved[layer] else "not"
        cells += [Text(""), *[heat(norm) for norm in norms], Text(moved)]
    return cells


def heat(norm: float) -> Text:
    """A number on a colour that says how large the gradient is."""
    number = f"{np.log10(norm):.1f}" if norm > 0 else "zero"
    return HEAT.cell(norm, CELL, number, mark="*" if norm < VANISHED else " ")


def scale() -> Text:
    """What the colours, the mark and the last column mean."""
    return Text.assemble(
        "       ", HEAT.legend(broken=False), "\n",
        f"       * vanished: below {VANISHED:.0e}\n",
        "       moved: how far the weights have come, relative to their size",
    )  # fmt: skip
