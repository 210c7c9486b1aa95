"""The memory a hook takes when a training gives it more than the disk takes."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure, own_python, run_json
from smdebug.trials import create_trial

STEPS, QUEUE_BYTES = 500, 64 << 20
LIMIT_MB = QUEUE_BYTES / 1e6 + 64
MEBIBYTE = (1 << 20) / 1e6


def measure(folder: Path, peer: str) -> list[Figure]:
    scratch = Path(tempfile.mkdtemp(prefix="tornasole-bench-"))
    found: dict[str, Any] = {}
    try:
        for library in ("none", "imported", "hooked"):
            print(f"    {STEPS} steps, {library}", flush=True)
            found[library] = run_json(
                own_python(), "benchmarks/train_fast.py", library, STEPS, QUEUE_BYTES,
                scratch / "run",
            )  # fmt: skip
        check(scratch / "run")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if found["hooked"]["seconds"] < 2 * found["none"]["seconds"]:
        raise RuntimeError(f"the hook kept up, its queue was never full: {found}")
    what = f"{STEPS} steps of 25 MB raw tensors, faster than the disk, queue of 67 MB: peak memory"
    none, imported, hooked = (found[key]["peak_mb"] for key in ("none", "imported", "hooked"))
    added = {
        "added by the hook, the library imported": hooked - imported,
        "added by importing the library, with pyarrow and pandas": imported - none,
    }
    figures = [
        Figure(f"{what} {part}", "", [size * MEBIBYTE], "MB") for part, size in added.items()
    ]
    return [replace(figures[0], target=f"< {LIMIT_MB:.0f} MB", limit=LIMIT_MB), *figures[1:]]


def check(run: Path) -> None:
    """Nothing was dropped."""
    steps = create_trial(str(run)).steps()
    if steps != list(range(STEPS)):
        raise RuntimeError(f"expected {STEPS} steps, the run has {len(steps)}")
