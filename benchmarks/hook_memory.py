"""The memory a hook takes when a training gives it more than the disk takes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bench import last_line, own_python, run_json
from benchmarks.figure import ORIGINAL, Figure
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from benchmarks.bench import Bench

STEPS, THEIR_STEPS, QUEUE_BYTES = 500, 20, 64 << 20
LIMIT_MB = QUEUE_BYTES / 1e6 + 64
MEBIBYTE = (1 << 20) / 1e6


def measure(bench: Bench) -> list[Figure]:
    scratch = Path(tempfile.mkdtemp(prefix="tornasole-bench-"))
    steps, found = bench.times(STEPS), {}
    try:
        for library in ("none", "imported", "hooked"):
            print(f"    {steps} steps, {library}", flush=True)
            found[library] = train(own_python(), library, steps, scratch / "run")
        check(scratch / "run", steps)
        peers = original(bench, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if found["hooked"]["seconds"] < 2 * found["none"]["seconds"] and not bench.quick:
        raise RuntimeError(f"the hook kept up, its queue was never full: {found}")
    what = f"{STEPS} steps of 25 MB raw tensors, faster than the disk, queue of 67 MB: peak memory"
    none, imported, hooked = (found[key]["peak_mb"] for key in ("none", "imported", "hooked"))
    added, loaded = MEBIBYTE * (hooked - imported), MEBIBYTE * (imported - none)
    by_hook, by_import = "added by the hook", "added by importing the library with pyarrow"
    target = f"< {LIMIT_MB:.0f} MB"
    return [
        Figure(f"{what} {by_hook}", target, [added], "MB", LIMIT_MB, peers=peers["hook"]),
        Figure(f"{what} {by_import}", "", [loaded], "MB", peers=peers["import"]),
    ]


def train(python: str, library: str, steps: int, run: Path, queue: int = QUEUE_BYTES) -> Any:
    return run_json(python, "benchmarks/train_fast.py", library, steps, queue, run)


def original(bench: Bench, scratch: Path) -> dict[str, dict[str, list[float] | str]]:
    """The same of smdebug 1.0.34, of fewer steps: it has no queue that fills."""
    if not bench.peer:
        return {"hook": {}, "import": {}}
    try:
        none, imported, hooked = (
            train(bench.peer, library, THEIR_STEPS, scratch / "theirs", 0)["peak_mb"]
            for library in ("none", "imported", "hooked")
        )
    except RuntimeError as error:
        return {key: {ORIGINAL: last_line(error)} for key in ("hook", "import")}
    return {
        "hook": {ORIGINAL: [MEBIBYTE * (hooked - imported)]},
        "import": {ORIGINAL: [MEBIBYTE * (imported - none)]},
    }


def check(run: Path, steps: int) -> None:
    """Nothing was dropped."""
    found = create_trial(str(run)).steps()
    if found != list(range(steps)):
        raise RuntimeError(f"expected {steps} steps, the run has {len(found)}")
