"""The figure of the demo: losses and gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from smdebug.cli.demo.analysis import VANISHED, NetworkRun, headline

if TYPE_CHECKING:
    from pathlib import Path

COLORS = {"sigmoid": "#b5179e", "relu": "#1d7874"}
# From the first step to the last.
OPACITIES = [0.25, 0.45, 0.7, 1.0]
STEPS = len(OPACITIES)


def save_figure(runs: list[NetworkRun], path: Path) -> None:
    """Write a PNG with the losses and the gradients of every layer."""
    mpl.use("Agg")
    from matplotlib import pyplot

    style = {
        "font.size": 11, "axes.spines.top": False, "axes.spines.right": False,
        "axes.titlelocation": "left", "axes.titlepad": 12,
    }  # fmt: skip
    with pyplot.rc_context(style):
        figure, (left, right) = pyplot.subplots(
            1, 2, figsize=(13, 5.2), width_ratios=(1, 1.25), layout="constrained"
        )
        for run in runs:
            draw_losses(left, run)
            draw_gradients(right, run)
        figure.suptitle(headline(runs), x=0.01, ha="left", fontsize=14, fontweight="bold")
        finish_losses(left)
        finish_gradients(right, runs)
        figure.savefig(path, dpi=130)
        pyplot.close(figure)


def draw_losses(axes: Any, run: NetworkRun) -> None:
    color, curve = COLORS[run.network], run.smoothed_losses(100)
    middles = (np.arange(len(curve)) + 0.5) * len(run.losses) / len(curve)
    axes.plot(run.losses, color=color, alpha=0.2, linewidth=0.8)
    axes.plot(middles, curve, color=color, linewidth=2.2)
    axes.annotate(
        f"{run.network}\n{run.accuracy:.0%} accuracy",
        (len(run.losses), curve[-1]), xytext=(4, 0), textcoords="offset points",
        color=color, fontweight="bold", va="center", annotation_clip=False,
    )  # fmt: skip


def finish_losses(axes: Any) -> None:
    axes.set_title("Loss")
    axes.set_xlabel("training step")
    axes.set_ylabel("cross entropy")
    axes.set_ylim(bottom=-0.05)
    axes.margins(x=0.01)
    axes.grid(axis="y", alpha=0.25)


def draw_gradients(axes: Any, run: NetworkRun) -> None:
    layers = np.arange(1, run.layers + 1)
    for index, opacity in zip(run.some_steps(STEPS), OPACITIES, strict=False):
        axes.plot(
            layers, run.norms[:, index], color=COLORS[run.network], alpha=opacity,
            marker="o", markersize=4, linewidth=2,
        )  # fmt: skip


def finish_gradients(axes: Any, runs: list[NetworkRun]) -> None:
    axes.set_yscale("log")
    axes.set_title("Gradient of each layer")
    axes.set_xlabel("layer (1 is next to the input)")
    axes.set_ylabel("L2 norm")
    axes.set_xticks(range(1, runs[0].layers + 1))
    smallest, largest = axes.get_ylim()
    axes.set_ylim(min(smallest, VANISHED / 10), largest)
    axes.axhline(VANISHED, color="black", linestyle="--", linewidth=1)
    axes.axhspan(axes.get_ylim()[0], VANISHED, color="black", alpha=0.06, linewidth=0)
    axes.text(
        runs[0].layers, VANISHED / 1.7, f"vanishes below {VANISHED:.0e}",
        ha="right", va="top", fontsize=10,
    )  # fmt: skip
    axes.grid(axis="y", alpha=0.25)
    run = runs[0]
    for index, opacity in zip(run.some_steps(STEPS), OPACITIES, strict=False):
        axes.plot([], [], color="black", alpha=opacity, label=f"step {run.steps[index]}")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.02), frameon=False, ncols=2, fontsize=10)
