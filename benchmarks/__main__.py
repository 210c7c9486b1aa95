"""Runs the figures and prints them as a table."""

from __future__ import annotations

import argparse
import importlib
import platform
from pathlib import Path

from benchmarks.figure import Figure, table

# Each is a module, imported when its turn comes: no environment has all frameworks.
FIGURES = (
    "index_scale", "against_original", "raw_tensors", "classic_open", "hundred_million",
    "hook_cost", "hook_memory", "rules_pass", "xgboost_cost", "keras_cost",
)  # fmt: skip
# These run where they are named.
ALONE = ("mxnet_cost", "tensorboard_cost")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--peer", default="", help="a python that has smdebug 1.0.34")
    parser.add_argument(
        "--only", choices=(*FIGURES, *ALONE), action="append", help="one figure of the table"
    )
    parser.add_argument("--folder", default=".bench", type=Path, help="where runs are written")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print(f"{platform.platform()}, Python {platform.python_version()}\n", flush=True)
    figures: list[Figure] = []
    for name in arguments.only or FIGURES:
        print(f"measuring {name} ...", flush=True)
        measure = importlib.import_module(f"benchmarks.{name}").measure
        figures += measure(arguments.folder.absolute(), arguments.peer)
    print("\n" + table(figures))


if __name__ == "__main__":
    main()
