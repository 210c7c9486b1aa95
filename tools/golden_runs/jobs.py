"""The jobs that write golden runs: what each is made of, and how its processes are started."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import smdebug
from tools.golden_runs.recorder import Recorder
from tools.golden_runs.settle import settle_reductions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    class Part(Protocol):
        """What one process of a job does."""

        def __call__(self, truth: Recorder) -> None: ...


# The exit status of a process that ends as if it had been killed.
KILLED = 9
# The module of each framework and the package whose version is recorded.
FRAMEWORKS = {
    "pytorch": ("tools.golden_runs.pytorch_runs", "torch"),
    "keras": ("tools.golden_runs.keras_runs", "tensorflow"),
    "xgboost": ("tools.golden_runs.xgboost_runs", "xgboost"),
    "mxnet": ("tools.golden_runs.mxnet_runs", "mxnet"),
}


@dataclass(frozen=True)
class Job:
    """A job that writes a golden run.

    Attributes:
        name: the name of the run.
        format: "v1" or "v2".
        parts: what its processes do, one after the other.
        ends: the status each of them exits with.
        finished: whether the last one closes its hook.
        afterwards: what is done to the run when they have ended.
    """

    name: str
    format: str
    parts: tuple[Part, ...]
    ends: tuple[int, ...] = (0,)
    finished: bool = True
    afterwards: Callable[[Path], None] | None = None


def jobs_of(framework: str) -> list[Job]:
    """Return the jobs of a framework."""
    jobs: list[Job] = importlib.import_module(FRAMEWORKS[framework][0]).JOBS
    return jobs


def run_part(framework: str, directory: Path, name: str, part: int) -> None:
    """Do, in this process, what one process of a job does."""
    (job,) = [job for job in jobs_of(framework) if job.name == name]
    truth = _recorder(framework, directory, job)
    job.parts[part](truth)
    truth.write()


def run_job(framework: str, directory: Path, job: Job) -> None:
    """Write the run of a job and the truth about it."""
    run = directory / job.name
    shutil.rmtree(run, ignore_errors=True)
    (directory / f"{job.name}.json").unlink(missing_ok=True)
    for part, status in enumerate(job.ends):
        command = [sys.executable, "-m", "tools.golden_runs", framework, str(directory)]
        ended = subprocess.run([*command, "--run", job.name, "--part", str(part)], check=False)
        if ended.returncode != status:
            raise RuntimeError(f"{job.name}, part {part}: exit status {ended.returncode}")
    if job.afterwards is not None:
        job.afterwards(run)
    _recorder(framework, directory, job).finish(job.finished)
    settle_reductions(run)


def end_as_killed(truth: Recorder) -> None:
    """End this process without closing anything, as a job that is killed does."""
    truth.write()
    os._exit(KILLED)


def _recorder(framework: str, directory: Path, job: Job) -> Recorder:
    package = FRAMEWORKS[framework][1]
    versions = {"smdebug": smdebug.__version__}
    versions[package] = str(importlib.import_module(package).__version__)
    return Recorder(directory / job.name, job.format, versions)
