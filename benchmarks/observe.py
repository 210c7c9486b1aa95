"""Times one library on one training, in all its setups; prints the ratios as JSON."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent))
# Before numpy is there, which asks once.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import torch

from benchmarks.blocks import repetition
from benchmarks.setups import Length, lengths
from benchmarks.trainings import TRAININGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.observers import Observer
    from benchmarks.trainings import Training


def ratios(
    build: Callable[[], Training],
    observe: Callable[[Training, Path], Observer],
    length: Length,
    folder: Path,
) -> list[float]:
    """One ratio per repetition, each written into a folder that is not there before or after."""
    found = []
    for _ in range(length.repetitions):
        folder.mkdir()
        try:
            found.append(repetition(build, lambda each: observe(each, folder), length))
        finally:
            shutil.rmtree(folder)
    return [statistics.median(rounds) for rounds in found] if len(found) > 1 else found[0]


def main(library: str, training: str, whose: str, folder: str, cache: str, quick: str) -> None:
    torch.set_num_threads(1)
    # Caches and settings go where everything goes, not into a home that is not there.
    for place in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        os.environ[place] = folder
    os.environ["WANDB_ERROR_REPORTING"] = "false"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    result: dict[str, Any] = {}
    known = lengths(library, training, whose == "ours", quick == "quick")
    for setup, length in known.items():
        try:
            module = importlib.import_module(f"benchmarks.observers.{library}")
            observe = partial(module.observe, setup)
            result[setup] = ratios(TRAININGS[training], observe, length, Path(folder) / "run")
        except Exception as error:
            # One setup that a library cannot do is a line of the table, not the end of it.
            result[setup] = f"{type(error).__name__}: {error}"
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
