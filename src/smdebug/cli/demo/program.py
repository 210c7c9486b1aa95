"""Trains, reads the runs back, shows what is in them."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from smdebug.cli.demo.figure import save_figure
from smdebug.cli.demo.look import conclusion, look
from smdebug.cli.demo.terminal import COLOURS, heat_table, loss_plot
from smdebug.cli.demo.train import ACTIVATIONS, DEPTH, train
from smdebug.cli.render.terminal import console as output

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console


def run(directory: Path, steps: int) -> None:
    """Does all of it.

    Args:
        directory: where the runs go; another one beside it when it holds something.
        steps: how long each network trains.
    """
    console = output()
    folder = fresh(directory)
    try:
        train_all(folder, steps, console)
        show(folder, console)
    except KeyboardInterrupt:
        console.print(f"\nstopped; what was saved until then is in {folder}", soft_wrap=True)
        raise


def fresh(folder: Path) -> Path:
    """Makes the folder, or, when it holds something, one with a number behind its name."""
    for number in count(1):
        candidate = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        candidate.mkdir(parents=True, exist_ok=True)
        if not any(candidate.iterdir()):
            break
    return candidate


def train_all(folder: Path, steps: int, console: Console) -> None:
    """Trains the networks one after the other, with a bar for each."""
    # The matrices are small: a second thread would cost more than it brings.
    torch.set_num_threads(1)
    console.print(f"\nTwo networks, {DEPTH} layers deep, learn to tell two spirals apart.\n")
    columns = (
        TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        for name in ACTIVATIONS:
            task = progress.add_task(f"[{COLOURS[name]}]{name}", total=steps, loss=0.0)
            for loss in train(name, folder / name, steps):
                progress.update(task, advance=1, loss=loss)


def show(folder: Path, console: Console) -> None:
    """Reads the runs back and shows what is in them."""
    began = time.perf_counter()
    all_found = [look(name, folder / name) for name in ACTIVATIONS]
    seconds = time.perf_counter() - began
    picture = folder / "demo.png"
    save_figure(all_found, picture)
    console.print()
    console.print(loss_plot(all_found))
    console.print()
    console.print(heat_table(all_found))
    console.print()
    for found in all_found:
        sentence = Text.assemble(
            (f"{found.network} network", f"bold {COLOURS[found.network]}"), f": {conclusion(found)}"
        )
        console.print(sentence)
    console.print(f"\nread back in {seconds:.2f} s from", soft_wrap=True)
    for found in all_found:
        console.print(f"  {folder / found.network}", soft_wrap=True)
    console.print(f"as a picture: {picture}", soft_wrap=True)
    console.print(f"\nto look further: smdebug show {folder / 'sigmoid'}", soft_wrap=True)
    console.print(f"                 smdebug layers {folder / 'sigmoid'}", soft_wrap=True)
