"""Train the networks, read their runs back, show the result."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from smdebug.cli.demo.analysis import analyze_run, conclusion
from smdebug.cli.demo.figure import save_figure
from smdebug.cli.demo.terminal import COLORS, heat_table, loss_plot
from smdebug.cli.demo.train import ACTIVATIONS, DEPTH, train
from smdebug.cli.render.terminal import console as output

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console


def run(directory: Path, steps: int) -> None:
    """Run the demo.

    Args:
        directory: for the runs; if it is not empty, one with a number is made next to it.
        steps: how many steps each network trains.
    """
    console = output()
    folder = fresh(directory)
    try:
        train_all(folder, steps, console)
        show(folder, console)
    except KeyboardInterrupt:
        console.print(f"\nstopped; the steps saved so far are in {folder}", soft_wrap=True)
        raise


def fresh(folder: Path) -> Path:
    """Make the folder or, if it is not empty, one with a number after its name."""
    for number in count(1):
        candidate = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        candidate.mkdir(parents=True, exist_ok=True)
        if not any(candidate.iterdir()):
            break
    return candidate


def train_all(folder: Path, steps: int, console: Console) -> None:
    """Train the networks one after the other, with a progress bar each."""
    # The matrices are small: a second thread makes training slower.
    torch.set_num_threads(1)
    console.print(f"\nTwo networks, {DEPTH} layers deep, learn to tell two spirals apart.\n")
    columns = (
        TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        for name in ACTIVATIONS:
            task = progress.add_task(f"[{COLORS[name]}]{name}", total=steps, loss=0.0)
            for loss in train(name, folder / name, steps):
                progress.update(task, advance=1, loss=loss)


def show(folder: Path, console: Console) -> None:
    """Read the runs back and show what is in them."""
    began = time.perf_counter()
    runs = [analyze_run(name, folder / name) for name in ACTIVATIONS]
    seconds = time.perf_counter() - began
    figure = folder / "demo.png"
    save_figure(runs, figure)
    console.print()
    console.print(loss_plot(runs))
    console.print()
    console.print(heat_table(runs))
    console.print()
    for run in runs:
        sentence = Text.assemble(
            (f"{run.network} network", f"bold {COLORS[run.network]}"), f": {conclusion(run)}"
        )
        console.print(sentence)
    console.print(f"\nread back in {seconds:.2f} s from", soft_wrap=True)
    for run in runs:
        console.print(f"  {folder / run.network}", soft_wrap=True)
    console.print(f"figure: {figure}", soft_wrap=True)
    console.print(f"\nnext: smdebug show {folder / 'sigmoid'}", soft_wrap=True)
    console.print(f"      smdebug layers {folder / 'sigmoid'}", soft_wrap=True)
