"""Raw tensors of 64 MB per step against the plain operations below: write(2) and a mapped file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.bench import fresh, last_line, run_json, seconds
from benchmarks.figure import FLOOR, ORIGINAL, Figure
from benchmarks.writing import COLLECTIONS
from smdebug.mode_keys import ModeKeys
from smdebug.storage.batch import Entry, StepBatch
from smdebug.storage.stores.base import open_store
from smdebug.storage.writer import RunWriter
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from smdebug.reductions import Array
    from smdebug.trials import Tensor

STEPS, REPETITIONS, THEIR_REPETITIONS = 12, 7, 3
ELEMENTS = 16 << 20
GIGABYTES = STEPS * ELEMENTS * 4 / 1e9
# Where there is one: a disk's write-back makes the very same write take one time or ten.
MEMORY = Path("/dev/shm")


class Pair(NamedTuple):
    """The seconds of the same work, done in turn."""

    plain: float
    ours: float


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


def write_pair(folder: Path, arrays: list[Array], plain_first: bool) -> Pair:
    """Each writes into the room the other has just left."""
    works = [plain_write, our_write] if plain_first else [our_write, plain_write]
    taken = {}
    for work in works:
        where = fresh(folder)
        began = seconds(lambda work=work, where=where: work(where, arrays))  # type: ignore[misc]
        taken[work] = began
    return Pair(taken[plain_write], taken[our_write])


def read_pair(plain: Path, ours: Path, cold: bool) -> Pair:
    """Of a new trial: one that has verified a record does so no more."""
    tensor = create_trial(str(ours)).tensor("w")
    sums: list[float] = []
    taken = []
    for work in (lambda: sums.append(plain_read(plain)), lambda: sums.append(our_read(tensor))):
        if cold:
            drop_caches(plain, ours)
        taken.append(seconds(work))
    if sums[0] != sums[1]:
        raise RuntimeError(f"the sums differ: {sums}")
    return Pair(*taken)


def drop_caches(*folders: Path) -> None:
    """Has the system forget the files' pages."""
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def original(bench: Bench, scratch: Path) -> dict[str, list[float] | str]:
    """What smdebug 1.0.34 writes and reads in a second, where we write."""
    if not bench.peer:
        return {}
    program, steps = "benchmarks/peer/raw_tensors.py", STEPS // 4
    found = []
    try:
        for _ in range(bench.times(THEIR_REPETITIONS)):
            found.append(run_json(bench.peer, program, fresh(scratch), steps, ELEMENTS))
        if not all(each["right"] for each in found):
            raise RuntimeError("it read other values than it wrote")
    except RuntimeError as error:
        return dict.fromkeys(("write", "read"), last_line(error))
    return {key: [GIGABYTES / 4 / each[key] for each in found] for key in ("write", "read")}


def measure(bench: Bench) -> list[Figure]:
    rng = np.random.default_rng(0)
    arrays = [rng.random(ELEMENTS, np.float32) for _ in range(STEPS)]
    folder, times = bench.folder, bench.times(REPETITIONS)
    scratch = (MEMORY if MEMORY.is_dir() else folder) / f"tornasole-bench-{os.getpid()}"
    write = [write_pair(scratch, arrays, bool(turn % 2)) for turn in range(times + 1)][1:]
    theirs = original(bench, scratch)
    fresh(scratch).rmdir()
    plain, ours = fresh(folder / "plain"), fresh(folder / "ours")
    our_write(ours, arrays)
    for number, array in enumerate(arrays):
        np.save(plain / f"{number}.npy", array)
    os.sync()
    hot = [read_pair(plain, ours, cold=False) for _ in range(times + 1)][1:]
    cold = [read_pair(plain, ours, cold=True) for _ in range(times)]
    fresh(plain), fresh(ours)
    return [
        figure_of("write, to memory; the floor is write(2)", write, theirs.get("write")),
        figure_of("read and sum, from the page cache", hot, theirs.get("read")),
        figure_of("read and sum, from the disk", cold, None),
    ]


def figure_of(what: str, pairs: list[Pair], theirs: list[float] | str | None) -> Figure:
    """Gigabytes in a second; the share of the floor counts."""
    peers: dict[str, list[float] | str] = {FLOOR: [GIGABYTES / pair.plain for pair in pairs]}
    if theirs is not None:
        peers[ORIGINAL] = theirs
    return Figure(
        f"raw tensors, 64 MB per step: {what}", ">= 0.8 of the floor",
        [GIGABYTES / pair.ours for pair in pairs], "GB/s", 0.8, at_least=True, peers=peers,
        ratios=[pair.plain / pair.ours for pair in pairs],
    )  # fmt: skip
