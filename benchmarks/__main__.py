"""Measures the figures, keeps them, and writes the page that shows them."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.bench import ROOT, Bench, last_line
from benchmarks.figure import table
from benchmarks.growth import growth_table
from benchmarks.machine import machine
from benchmarks.page import by_size, write_page
from benchmarks.results import Measured, Results, measured_from

# Each is a module that runs in a process of its own: no environment has all frameworks, and what
# one leaves behind is not to be in the figures of the next.
FIGURES = (
    "hook_cost", "hook_memory", "job_cost", "keras_cost", "xgboost_cost", "tensorboard_cost",
    "against_original", "raw_tensors", "index_scale", "classic_open", "hundred_million",
    "rules_pass", "growth_steps", "growth_tensors", "growth_workers", "growth_rows",
)  # fmt: skip
# These run where they are named.
ALONE = ("mxnet_cost",)
# Longer than any of them takes: one that hangs is a line that failed, and the others go on.
PATIENCE = 1800.0


def main() -> int:
    arguments = options()
    # Whoever ends this process ends the one that measures with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    kept = arguments.folder / "results.json"
    keep = arguments.only or arguments.resume
    results = Results.load(kept) if keep else Results()
    # What is added later is of the same machine, but of another Python, perhaps.
    results.machine = results.machine or machine()
    bench = Bench(arguments.folder.absolute(), arguments.peer, arguments.quick)
    began, names = time.monotonic(), arguments.only or FIGURES
    for place, name in enumerate(names, 1):
        if arguments.resume and results.has(name, arguments.quick):
            print(f"{place}/{len(names)} {name}: kept", flush=True)
            continue
        passed = time.monotonic() - began
        print(f"{place}/{len(names)} {name} (after {passed:.0f} s) ...", flush=True)
        found = measure(name, bench)
        results.measured.pop(name, None)
        results.measured[name] = found
        results.save(kept)
        print(f"    {found.failed or 'done'} in {found.seconds:.0f} s", flush=True)
    show(results, list(names))
    if arguments.page:
        write_page(arguments.page, results)
        print(f"\nwrote {arguments.page}")
    return any(results.measured[name].failed for name in names)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--peer", default="", help="a python that has smdebug 1.0.34")
    parser.add_argument(
        "--only", choices=(*FIGURES, *ALONE), action="append",
        help="one module; what was measured before is kept",
    )  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="leave out what was measured before")
    parser.add_argument("--quick", action="store_true", help="a tenth of it, to see that it works")
    parser.add_argument("--folder", default=".bench", type=Path, help="where runs are written")
    parser.add_argument("--page", type=Path, help="the page to write, from all that is kept")
    return parser.parse_args()


def measure(name: str, bench: Bench) -> Measured:
    """What a module finds, or why it does not."""
    answer = bench.folder / f"{name}.json"
    answer.unlink(missing_ok=True)
    kind = "quick" if bench.quick else "full"
    command = [
        sys.executable, "-m", "benchmarks.one", name, str(bench.folder), bench.peer, kind,
        str(answer),
    ]  # fmt: skip
    load, began = os.getloadavg()[0], time.monotonic()
    try:
        done = subprocess.run(
            command, check=False, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=PATIENCE
        )
        if done.returncode:
            print(done.stderr, file=sys.stderr, flush=True)
            raise RuntimeError(done.stderr or f"it ended with {done.returncode}")
        found = measured_from(json.loads(answer.read_text(encoding="utf-8")))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        found = Measured(name, failed=last_line(error), quick=bench.quick)
    answer.unlink(missing_ok=True)
    return replace(found, seconds=time.monotonic() - began, load=load)


def show(results: Results, names: list[str]) -> None:
    """Prints what was measured now."""
    measured = [results.measured[name] for name in names]
    figures = [figure for each in measured for figure in each.figures]
    if figures:
        print("\n" + table(figures))
    for curves in by_size(measured).values():
        print("\n" + growth_table(curves))


if __name__ == "__main__":
    sys.exit(main())
