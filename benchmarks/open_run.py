"""Opens a run, lists its names, reads one series; prints seconds and peak memory as JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def peak_megabytes() -> float:
    # Not getrusage: a child inherits the peak of the process that started it.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main(path: str, tensor: str, reduction: str) -> None:
    began = time.perf_counter()
    from smdebug.trials import create_trial

    trial = create_trial(path)
    names = trial.tensor_names()
    steps, values = trial.tensor(tensor).series(reduction)
    taken = time.perf_counter() - began
    peak = peak_megabytes()
    result = {"seconds": taken, "peak_mb": peak, "names": len(names), "steps": len(steps)}
    print(json.dumps({**result, "last": float(values[-1])}))


if __name__ == "__main__":
    main(*sys.argv[1:])
