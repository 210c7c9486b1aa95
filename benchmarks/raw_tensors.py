"""Raw tensors of 64 MB per step against the plain operations below: write(2) and a mapped file."""

from __future__ import annotations

import os
from pathlib import Path
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
    from smdebug.reductions import Array
    from smdebug.trials import Tensor

STEPS, REPETITIONS = 12, 9
ELEMENTS = 16 << 20
# Where there is one: a disk's write-back makes the very same write take one time or ten.
MEMORY = Path("/dev/shm")


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


def our_read(tensor: Tensor) -> float:
    return sum(float(value.sum()) for value in tensor.values().values())


def write_ratio(folder: Path, arrays: list[Array], plain_first: bool) -> float:
    """Plain time over ours; each writes into the room the other has just left."""
    works = [plain_write, our_write] if plain_first else [our_write, plain_write]
    taken = {}
    for work in works:
        where = fresh(folder)
        began = seconds(lambda work=work, where=where: work(where, arrays))  # type: ignore[misc]
        taken[work] = began
    return taken[plain_write] / taken[our_write]


def read_ratio(plain: Path, ours: Path, cold: bool) -> float:
    """Plain time over ours, of a new trial: one that has verified a record does so no more."""
    tensor = create_trial(str(ours)).tensor("w")
    sums: list[float] = []
    taken = []
    for work in (lambda: sums.append(plain_read(plain)), lambda: sums.append(our_read(tensor))):
        if cold:
            drop_caches(plain, ours)
        taken.append(seconds(work))
    if sums[0] != sums[1]:
        raise RuntimeError(f"the sums differ: {sums}")
    return taken[0] / taken[1]


def drop_caches(*folders: Path) -> None:
    """Has the system forget the files' pages."""
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measure(folder: Path, peer: str) -> list[Figure]:
    rng = np.random.default_rng(0)
    arrays = [rng.random(ELEMENTS, np.float32) for _ in range(STEPS)]
    scratch = (MEMORY if MEMORY.is_dir() else folder) / f"tornasole-bench-{os.getpid()}"
    write = [write_ratio(scratch, arrays, bool(turn % 2)) for turn in range(REPETITIONS + 1)][1:]
    fresh(scratch).rmdir()
    plain, ours = fresh(folder / "plain"), fresh(folder / "ours")
    our_write(ours, arrays)
    for number, array in enumerate(arrays):
        np.save(plain / f"{number}.npy", array)
    os.sync()
    hot = [read_ratio(plain, ours, cold=False) for _ in range(REPETITIONS + 1)][1:]
    cold = [read_ratio(plain, ours, cold=True) for _ in range(REPETITIONS)]
    fresh(plain), fresh(ours)
    what = "raw tensors, 64 MB per step: "
    read = what + "read + sum, as share of numpy.load mapped, "
    return [
        Figure(what + "write, as share of plain write(2)", ">= 0.8", write, "x", 0.8, True),
        Figure(read + "from the page cache", ">= 0.8", hot, "x", 0.8, True),
        Figure(read + "from the disk", ">= 0.8", cold, "x", 0.8, True),
    ]
