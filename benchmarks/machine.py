"""What figures were measured on: no name of a machine, no path."""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from pathlib import Path

LIBRARIES = (
    "numpy", "pyarrow", "duckdb", "torch", "tensorflow-cpu", "keras", "xgboost-cpu", "mxnet",
    "wandb", "tensorboard",
)  # fmt: skip


def machine() -> dict[str, str]:
    """Processor, memory, system, day."""
    cores = len(os.sched_getaffinity(0))
    return {
        "processor": processor(),
        "cores": str(cores),
        "memory": memory(),
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def processor() -> str:
    """The model, as the processor calls itself."""
    name = line_of("/proc/cpuinfo", "model name").partition(":")[2].strip()
    return name or platform.machine()


def memory() -> str:
    kilobytes = line_of("/proc/meminfo", "MemTotal").split()
    return f"{int(kilobytes[1]) / 1e6:.0f} GB" if len(kilobytes) > 1 else "not known"


def line_of(path: str, start: str) -> str:
    """The first line of a file that starts with something; empty where there is none."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(start)), "")


def versions() -> dict[str, str]:
    """The libraries that this interpreter has."""
    found = {}
    for library in LIBRARIES:
        try:
            found[library.removesuffix("-cpu")] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return found
