"""Runs of today that `smdebug export --format v1` wrote are read by smdebug 1.0.34."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tests.command import smdebug
from tests.trials.mixed_run import NUMBERS, STEPS, WORKERS, make_mixed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The original has no entry for these and raises KeyError; it takes int8 for uint8.
UNREADABLE = ("int8", "int16", "uint16", "uint32", "uint64")


def test_the_original_reads_it(ask_original: Callable[[Path], Any], tmp_path: Path) -> None:
    truth = make_mixed(tmp_path / "run")
    smdebug(tmp_path, "export", "run", "old", "--format", "v1")
    seen = ask_original(tmp_path / "old")
    assert len(seen["workers"]) == seen["num_workers"] == len(WORKERS)
    assert seen["modes"] == ["EVAL", "TRAIN"]
    assert seen["steps"]["GLOBAL"] == list(STEPS)
    assert seen["steps"]["EVAL"] == [0]
    assert seen["mode_of_step"] == [
        [step, "EVAL" if step == 2 else "TRAIN", 0 if step == 2 else step] for step in STEPS
    ]
    assert seen["tensor_names"] == sorted({name for _, _, name in truth})
    assert seen["tensor_names_of_collection"]["losses"] == ["loss", "nan_loss"]
    rows = {(row["worker"], row["step"], row["tensor"]): row for row in seen["rows"]}
    # A name of a worker that makes no file name is escaped in one, which the original shows.
    spelt = {worker: worker.replace(" ", "%20").replace("/", "%2F") for worker in WORKERS}
    assert rows.keys() == {(spelt[worker], step, name) for worker, step, name in truth}
    readable = {f"plain/{name}" for name in NUMBERS if name not in UNREADABLE}
    compared = 0
    for (worker, step, name), entry in truth.items():
        row = rows[spelt[worker], step, name]
        for key, number in entry.reductions.items():
            if key in row["saved_reductions"]:
                found = row["saved_reductions"][key]
                assert np.float64(found).tobytes() == np.float64(number).tobytes(), (name, key)
                compared += 1
        if entry.value is None or not (name in readable or name in ("loss", "fc.weight", "text")):
            continue
        assert row["value"].dtype == entry.value.dtype
        assert row["value"].tobytes() == entry.value.tobytes()
        compared += 1
    # Three reductions that the original knows of three tensors; the values of ten.
    assert compared >= len(STEPS) * len(WORKERS) * (3 * 3 + 10)
