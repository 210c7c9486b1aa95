"""What observing a training costs: our hook; smdebug 1.0.34, wandb, TensorBoard; and by hand.

Every figure is the time of a step over that of the same training alone, on one thread.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from benchmarks.bench import last_line, own_python, run_json
from benchmarks.figure import FLOOR, ORIGINAL, TENSORBOARD, WANDB, Figure
from benchmarks.growth import OURS
from benchmarks.setups import COMPILED, DEEP, GPT, SETUPS, lengths

if TYPE_CHECKING:
    from benchmarks.bench import Bench

# Which module of `observers` watches which trainings for whom.
LIBRARIES = {
    OURS: ("smdebug_hook", (GPT, COMPILED, DEEP)),
    ORIGINAL: ("smdebug_hook", (GPT, COMPILED, DEEP)),
    WANDB: ("wandb_watch", (GPT, DEEP)),
    TENSORBOARD: ("tensorboard_writer", (GPT, DEEP)),
    FLOOR: ("floor", (GPT, DEEP)),
}
Found = dict[str, "list[float] | str"]


def measure(bench: Bench) -> list[Figure]:
    figures = []
    for training in SETUPS:
        found: dict[str, Found] = {}
        for library, (module, trainings) in LIBRARIES.items():
            if training in trainings and (bench.peer or library != ORIGINAL):
                # Whoever else uses the machine is in the figures: ratios of 1.01 need it at rest.
                print(f"    {training}: {library} (load {os.getloadavg()[0]:.1f})", flush=True)
                found[library] = observe(bench, library, module, training)
        figures += [figure_of(training, setup, found) for setup in SETUPS[training]]
    return figures


def observe(bench: Bench, library: str, module: str, training: str) -> Found:
    """What each of a library's setups gave: ratios, or why there are none."""
    # Where the system has its scratch space, and gone afterwards however the program ends.
    scratch = tempfile.mkdtemp(prefix="tornasole-bench-")
    python = bench.peer if library == ORIGINAL else own_python()
    whose, kind = "ours" if library == OURS else "theirs", "quick" if bench.quick else "full"
    cache = bench.folder / "inductor"
    try:
        found: Found = run_json(
            python, "benchmarks/observe.py", module, training, whose, scratch, cache, kind
        )
        return found
    except RuntimeError as error:
        known = lengths(module, training, library == OURS, bench.quick)
        return dict.fromkeys(known, last_line(error))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def figure_of(training: str, setup: str, found: dict[str, Found]) -> Figure:
    """A setup's line: ours, and beside it whoever did the same."""
    limit = SETUPS[training][setup].limit
    what, target = f"{training}: {setup}", "" if limit is None else f"<= {limit:g} x"
    peers = {
        library: last_line(values) if isinstance(values, str) else values
        for library, results in found.items()
        if library != OURS and (values := results.get(setup)) is not None
    }
    ours = found[OURS].get(setup, "nothing was measured")
    if isinstance(ours, str):
        return Figure(what, target, [], "x", limit, failed=last_line(ours), peers=peers)
    return Figure(what, target, ours, "x", limit, digits=4, peers=peers)
