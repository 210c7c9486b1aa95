"""Runs the figures and prints them as a table."""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

from benchmarks import (
    against_original,
    classic_open,
    hook_cost,
    hook_memory,
    hundred_million,
    index_scale,
    keras_cost,
    raw_tensors,
    rules_pass,
    xgboost_cost,
)
from benchmarks.figure import Figure, table

FIGURES = {
    "index_scale": index_scale.measure,
    "against_original": against_original.measure,
    "raw_tensors": raw_tensors.measure,
    "classic_open": classic_open.measure,
    "hundred_million": hundred_million.measure,
    "hook_cost": hook_cost.measure,
    "hook_memory": hook_memory.measure,
    "rules_pass": rules_pass.measure,
    "xgboost_cost": xgboost_cost.measure,
    "keras_cost": keras_cost.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--peer", required=True, help="a python that has smdebug 1.0.34")
    parser.add_argument("--only", choices=FIGURES, action="append", help="one figure of the table")
    parser.add_argument("--folder", default=".bench", type=Path, help="where runs are written")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print(f"{platform.platform()}, Python {platform.python_version()}\n", flush=True)
    figures: list[Figure] = []
    for name, measure in FIGURES.items():
        if arguments.only is None or name in arguments.only:
            print(f"measuring {name} ...", flush=True)
            figures += measure(arguments.folder.absolute(), arguments.peer)
    print("\n" + table(figures))


if __name__ == "__main__":
    main()
