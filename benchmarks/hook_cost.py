"""What observing a training costs: our hook, and beside it smdebug 1.0.34, wandb, TensorBoard.

Every figure is the time of a step over that of the same training alone, on one thread.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from benchmarks.figure import Figure, own_python, run_json
from benchmarks.setups import COMPILED, DEEP, GPT, SETUPS, lengths

if TYPE_CHECKING:
    from pathlib import Path

OURS, ORIGINAL = "our hook", "smdebug 1.0.34"
HOOK = "smdebug_hook"
# Which module of `observers` watches which trainings for whom.
LIBRARIES = {
    OURS: (HOOK, (GPT, COMPILED, DEEP)),
    ORIGINAL: (HOOK, (GPT, COMPILED, DEEP)),
    "wandb offline": ("wandb_watch", (GPT, DEEP)),
    "tensorboard": ("tensorboard_writer", (GPT, DEEP)),
}


def measure(folder: Path, peer: str) -> list[Figure]:
    # By training and setup, so that the libraries stand one below the other.
    figures: dict[tuple[str, str], list[Figure]] = {}
    for library, (module, trainings) in LIBRARIES.items():
        for training in trainings:
            # Whoever else uses the machine is in the figures: ratios of 1.01 need one at rest.
            print(f"    {training}: {library} (load {os.getloadavg()[0]:.1f})", flush=True)
            python, ours = peer if library == ORIGINAL else own_python(), library == OURS
            results = observe(python, module, training, ours, folder / "inductor")
            for setup, found in results.items():
                figure = figure_of(library, training, setup, found)
                figures.setdefault((training, setup), []).append(figure)
    return [figure for group in figures.values() for figure in group]


def observe(
    python: str, module: str, training: str, ours: bool, cache: Path
) -> dict[str, list[float] | str]:
    """What each of a library's setups gave: ratios, or why there are none."""
    # Where the system has its scratch space, and gone afterwards however the program ends.
    scratch = tempfile.mkdtemp(prefix="tornasole-bench-")
    arguments = (module, training, "ours" if ours else "theirs", scratch, cache)
    try:
        found: dict[str, list[float] | str]
        found = run_json(python, "benchmarks/observe.py", *arguments)
        return found
    except RuntimeError as error:
        return dict.fromkeys(lengths(module == HOOK, training, ours), str(error))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def figure_of(library: str, training: str, setup: str, found: list[float] | str) -> Figure:
    what = f"{training}, {setup}: {library} over none"
    limit = SETUPS[training][setup].limit if library == OURS else None
    target = "" if limit is None else f"<= {limit:g}x"
    if isinstance(found, str):
        return Figure(what, target, [], "x", limit, failed=found.strip().splitlines()[-1])
    return Figure(what, target, found, "x", limit, digits=4)
