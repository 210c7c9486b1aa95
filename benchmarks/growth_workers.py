"""More and more processes that write into one run at once, and a reader that looks on."""

from __future__ import annotations

import contextlib
import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.bench import ROOT, environment, fresh, own_python, seconds
from benchmarks.figure import ORIGINAL
from benchmarks.growth import OURS, Curve, Curves

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.bench import Bench

SIZES, REPETITIONS, THEIR_REPETITIONS = (1, 2, 4, 8), 5, 1
# Half of the steps before the reader opens the run, half before it looks again.
STEPS, TENSORS = 10, 100
COSTS = {
    "write": ("all write at once, per row of one", "µs"),
    "open": ("open while it is written, list the names", "s"),
    "refresh": ("look for new steps", "s"),
}


class Told:
    """A program that does the next thing when it gets a line, and answers with one."""

    def __init__(self, python: str, program: str, *arguments: object) -> None:
        command = [python, str(ROOT / program), *map(str, arguments)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment(python),
        )  # fmt: skip
        self._program = program

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._program} ended with {self._process.wait()}")
        return line

    def end(self) -> None:
        """Lets it end by itself, or ends it."""
        with contextlib.suppress(OSError):
            self.tell()
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def measure(bench: Bench) -> list[Curve]:
    curves = Curves("workers", COSTS)
    for size in SIZES[:2] if bench.quick else SIZES:
        for whose in (OURS, ORIGINAL):
            if whose == OURS or bench.peer:
                times = bench.times(REPETITIONS if whose == OURS else THEIR_REPETITIONS)
                curves.measure(whose, size, partial(many, bench, whose, size, times))
    return curves.all()


def many(bench: Bench, whose: str, size: int, times: int) -> list[dict[str, float]]:
    return [once(bench, whose, size) for _ in range(times)]


def once(bench: Bench, whose: str, size: int) -> dict[str, float]:
    """What one run of so many workers costs."""
    run, steps = fresh(bench.folder / "growth_workers"), bench.times(STEPS)
    with programs(bench, whose, size, run, steps) as (reader, *writers):
        taken = []
        costs = {}
        for cost in ("open", "refresh"):
            for writer in writers:
                writer.answer()
            taken.append(seconds(lambda: written(writers)))
            if cost == "open":
                reader.answer()
            reader.tell()
            costs[cost] = json.loads(reader.answer())
    seen = [costs[cost]["steps"] for cost in ("open", "refresh")]
    if seen != [steps, 2 * steps]:
        raise RuntimeError(f"{whose}: {size} workers wrote {steps} steps twice, seen: {seen}")
    fresh(run)
    # The second time: whatever is made once has been made.
    return {
        "write": 1e6 * taken[1] / (steps * TENSORS),
        **{cost: each["seconds"] for cost, each in costs.items()},
    }


def written(writers: list[Told]) -> None:
    """Has all of them write, and waits for the last."""
    for writer in writers:
        writer.tell()
    for writer in writers:
        writer.answer()


@contextlib.contextmanager
def programs(bench: Bench, whose: str, size: int, run: Path, steps: int) -> Iterator[list[Told]]:
    """A reader and the workers."""
    python, folder = own_python(), "benchmarks"
    if whose == ORIGINAL:
        python, folder = bench.peer, "benchmarks/peer"
    started = [Told(python, "benchmarks/peer/open_and_refresh.py", run)]
    try:
        for number in range(size):
            arguments = run, f"worker_{number}", size, steps, TENSORS
            started.append(Told(python, f"{folder}/write_worker.py", *arguments))
        yield started
    finally:
        for each in started:
            each.end()
