"""A run with a bit of everything: two workers, two modes, many types, reductions, bad names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.mode_keys import ModeKeys
from smdebug.reductions import compute_reductions
from smdebug.storage.batch import Entry, StepBatch
from smdebug.testing import make_run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from smdebug.storage.stores.base import Store

WORKERS = ("worker_0", "host b/1")
STEPS = (0, 1, 2, 40, 1001)
NUMBERS = (
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
    "uint32", "uint64", "bool",
)  # fmt: skip
SHORT = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
REDUCTIONS = ("mean", "l2", "abs_max", "nans")
AWKWARD = 'a, "quoted"\nname\r;'


# Every tensor by worker, step and name.
Truth = dict[tuple[str, int, str], Entry]


def entries(worker: str, step: int) -> list[Entry]:
    random = np.random.default_rng([step, WORKERS.index(worker)])
    small = random.integers(0, 5, (2, 3))
    holes = np.array([np.nan, np.inf, -np.inf, -0.0, random.normal()], np.float32)
    deep = random.normal(size=(3, 5))
    return [
        Entry("loss", np.asarray(random.normal(), np.float32)),
        *(Entry(f"plain/{name}", small.astype(name)) for name in NUMBERS),
        *(Entry(f"short/{name}", small.astype(getattr(ml_dtypes, name))) for name in SHORT),
        Entry("complex/c64", small.astype(np.complex64) * 1j),
        Entry("complex/c128", small.astype(np.complex128) * 1j),
        Entry("text", np.array(["gain", "größe", "", f"{step}:0"])),
        Entry("empty", np.zeros((0, 3), np.float32)),
        Entry("large_count", np.array([2**60 + 2 * step + 1])),
        Entry("nan_loss", np.asarray(np.nan, np.float32)),
        Entry(AWKWARD, holes, compute_reductions(holes, REDUCTIONS)),
        Entry("fc.weight", deep, compute_reductions(deep, REDUCTIONS)),
        Entry(
            "reduced/only", reductions=compute_reductions(deep, REDUCTIONS), shape=deep.shape,
            dtype="float64",
        ),
    ]  # fmt: skip


def batch(worker: str, step: int) -> StepBatch:
    mode, mode_step = (ModeKeys.EVAL, 0) if step == 2 else (ModeKeys.TRAIN, step)
    return StepBatch(step, mode, mode_step, entries(worker, step), time=1000.0 + step)


def collections() -> CollectionManager:
    return CollectionManager(
        [Collection("losses", include_regex="loss$"), Collection("weights", "weight$")]
    )


def make_mixed(
    path: Path | Store,
    workers: tuple[str, ...] = WORKERS,
    steps: Iterable[int] = STEPS,
    format: str = "v2",
    end: bool = True,
) -> Truth:
    """Writes it; returns what was written."""
    written = make_run(
        path, steps, workers, format, batch, collections=collections(), flush_every=2, end=end
    )
    return {
        (worker, step, entry.name): entry
        for (worker, step), saved in written.items()
        for entry in saved.entries
    }
