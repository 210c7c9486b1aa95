"""Runs one module in a process of its own, and writes what it found as JSON."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.figure import Figure
from benchmarks.machine import versions
from benchmarks.results import Measured


def main(module: str, folder: str, peer: str, quick: str, answer: str) -> None:
    measure = importlib.import_module(f"benchmarks.{module}").measure
    found = measure(Bench(Path(folder), peer, quick == "quick"))
    figures = [each for each in found if isinstance(each, Figure)]
    curves = [each for each in found if not isinstance(each, Figure)]
    measured = Measured(module, figures, curves, versions=versions(), quick=quick == "quick")
    Path(answer).write_text(json.dumps(asdict(measured)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
