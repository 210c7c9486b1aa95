"""The plots of the demo in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from smdebug.cli.demo.analysis import VANISHED, NetworkRun
from smdebug.cli.render.heatmap import Heatmap
from smdebug.cli.render.line_plot import PlotCurve, legend, plot

if TYPE_CHECKING:
    from rich.console import RenderableType

COLORS = {"sigmoid": "bright_magenta", "relu": "bright_cyan"}
WIDTH, ROWS = 75, 9
HEAT_STEPS = 4
CELL = 7
# Powers of ten, from vanished to large.
HEATMAP = Heatmap(-8, 0)


def loss_plot(runs: list[NetworkRun]) -> RenderableType:
    """Return the plot of the loss of every network."""
    curves = []
    for run in runs:
        losses = run.smoothed_losses(2 * WIDTH)
        steps = np.rint(np.linspace(0, len(run.losses) - 1, len(losses)))
        curves.append(PlotCurve(run.network, steps, losses, COLORS[run.network]))
    title = Text.assemble(("Loss", "bold"), " over the training steps   ", legend(curves))
    return plot(curves, title, WIDTH, ROWS, zero=True)


def heat_table(runs: list[NetworkRun]) -> RenderableType:
    """Return the heatmap of gradient norms: layers by steps, networks side by side."""
    table = Table(box=None, padding=0, pad_edge=False, header_style="dim")
    table.add_column("layer", justify="right")
    names = Text("     ")
    for run in runs:
        indices = run.some_steps(HEAT_STEPS)
        table.add_column("  ")
        for index in indices:
            table.add_column(f"{run.steps[index]:>{CELL - 1}} ", min_width=CELL)
        table.add_column("moved", justify="right", min_width=CELL)
        width = CELL * len(indices) + CELL
        names.append("  " + run.network.ljust(width), f"bold {COLORS[run.network]}")
    for layer in range(runs[0].layers):
        table.add_row(str(layer + 1), *heat_row(runs, layer))
    title = Text.assemble(
        ("Gradient of each layer", "bold"), ", log10 of its L2 norm, at some steps"
    )
    return Group(title, Text(""), names, table, Text(""), scale())


def heat_row(runs: list[NetworkRun], layer: int) -> list[Text]:
    """Return the cells of one layer."""
    cells = []
    for run in runs:
        norms = [float(run.norms[layer, index]) for index in run.some_steps(HEAT_STEPS)]
        moved = f"{run.moved[layer]:.0e}" if run.moved[layer] else "not"
        cells += [Text(""), *[heat_cell(norm) for norm in norms], Text(moved)]
    return cells


def heat_cell(norm: float) -> Text:
    """Return the logarithm of a norm on the color of its magnitude."""
    number = f"{np.log10(norm):.1f}" if norm > 0 else "zero"
    return HEATMAP.cell(norm, CELL, number, mark="*" if norm < VANISHED else " ")


def scale() -> Text:
    """Return the legend of the heatmap."""
    return Text.assemble(
        "       ", HEATMAP.legend(non_finite=False), "\n",
        f"       * vanished: below {VANISHED:.0e}\n",
        "       moved: the change of the weights, relative to their size",
    )  # fmt: skip
