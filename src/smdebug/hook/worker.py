"""A process among those of a job."""

from __future__ import annotations

from typing import NamedTuple

CHIEF_WORKER = "worker_0"


class Worker(NamedTuple):
    """This process among those of a job."""

    name: str = CHIEF_WORKER
    workers: int = 1
    chief: bool = True
