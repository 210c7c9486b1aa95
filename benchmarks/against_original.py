"""The same content written, opened and read by smdebug 1.0.34 and by this library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.figure import Figure, fresh, own_python, run_json, size_of

if TYPE_CHECKING:
    from pathlib import Path

STEPS, TENSORS, REPETITIONS = 60, 150, 5


def measure(folder: Path, peer: str) -> list[Figure]:
    write, read, size = [], [], []
    for _ in range(REPETITIONS):
        old, new = fresh(folder / "old"), fresh(folder / "new")
        theirs = run_json(peer, "benchmarks/peer/write_and_read.py", old, STEPS, TENSORS)
        ours = run_json(own_python(), "benchmarks/write_and_read.py", new, STEPS, TENSORS)
        if abs(theirs["sum"] - ours["sum"]) > 1e-6 * abs(ours["sum"]):
            raise RuntimeError(f"the two libraries read different values: {theirs} {ours}")
        write.append(theirs["write"] / ours["write"])
        read.append(theirs["read"] / ours["read"])
        size.append(size_of(old) / size_of(new))
    what = f"{STEPS} steps x {TENSORS} tensors x 5 reductions, smdebug 1.0.34 over ours: "
    return [
        Figure(what + "time to write", ">= 20x", write, "x", 20, at_least=True),
        Figure(what + "time to open and read all", ">= 10x", read, "x", 10, at_least=True),
        Figure(what + "size on disk", ">= 20x", size, "x", 20, at_least=True),
    ]
