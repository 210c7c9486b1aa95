"""Raw tensors of 64 MB per step against the plain operations below: write(2) and a mapped file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.figure import Figure, fresh, seconds
from benchmarks.writing import COLLECTIONS
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.store import open_store
from smdebug.storage.writer import RunWriter
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.reductions import Array

STEPS, REPETITIONS = 12, 9
ELEMENTS = 16 << 20


def plain_write(folder: Path, arrays: list[Array]) -> None:
    for number, array in enumerate(arrays):
        descriptor = os.open(folder / f"{number}.bin", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        view = array.data.cast("B")
        while len(view):
            view = view[os.write(descriptor, view) :]
        os.close(descriptor)


def our_write(folder: Path, arrays: list[Array]) -> None:
    with RunWriter(open_store(str(folder))) as writer:
        writer.write_collections(COLLECTIONS)
        for step, array in enumerate(arrays):
            writer.submit(StepBatch(step, ModeKeys.TRAIN, step, [Entry("w", array)]))


def plain_read(folder: Path) -> float:
    return sum(float(np.load(folder / f"{n}.npy", mmap_mode="r").sum()) for n in range(STEPS))


def our_read(folder: Path) -> float:
    values = create_trial(str(folder)).tensor("w").values()
    return sum(float(value.sum()) for value in values.values())


def measure(folder: Path, peer: str) -> list[Figure]:
    rng = np.random.default_rng(0)
    arrays = [rng.random(ELEMENTS, np.float32) for _ in range(STEPS)]
    plain, ours = folder / "plain", folder / "ours"
    write, read = [], []
    for _ in range(REPETITIONS):
        fresh(plain), fresh(ours)
        floor = seconds(lambda: plain_write(plain, arrays))
        write.append(floor / seconds(lambda: our_write(ours, arrays)))
    for number, array in enumerate(arrays):
        np.save(plain / f"{number}.npy", array)
    if plain_read(plain) != our_read(ours):
        raise RuntimeError("the sums differ")
    for _ in range(REPETITIONS):
        floor = seconds(lambda: plain_read(plain))
        read.append(floor / seconds(lambda: our_read(ours)))
    fresh(plain), fresh(ours)
    what = "raw tensors, 64 MB per step: "
    return [
        Figure(what + "write, as share of plain write(2)", ">= 0.8", write, "x", 0.8, True),
        Figure(what + "read + sum, as share of numpy.load mapped", ">= 0.8", read, "x", 0.8, True),
    ]
