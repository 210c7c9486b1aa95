"""Trains everything in the gym and prints what the rules found."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time

import torch

from smdebug.testing.faults.gym import run_gym


def main() -> int:
    """Runs the gym; 0 when every rule did what it should."""
    parser = argparse.ArgumentParser(prog="python -m smdebug.testing.faults", description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="train what has this in its name"
    )
    parser.add_argument("--keep", metavar="FOLDER", help="keep the runs in this folder")
    given = parser.parse_args()
    torch.set_num_threads(1)
    # What rules find is in the table.
    logging.getLogger("smdebug").setLevel(logging.ERROR)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        table = run_gym(given.keep or folder, given.only, _say)
    sys.stdout.write(f"{table}\n\n{time.monotonic() - began:.0f} seconds\n")
    return 0 if table.passed else 1


def _say(name: str) -> None:
    sys.stderr.write(f"{name} ...\n")


if __name__ == "__main__":
    sys.exit(main())
