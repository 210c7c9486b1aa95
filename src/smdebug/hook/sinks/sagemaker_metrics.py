"""The metrics file of a SageMaker job: one JSON object per line, which the platform reads."""

from __future__ import annotations

import json
import logging
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config.collection import SM_METRIC_COLLECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from smdebug.hook.plan import SaveRequest
    from smdebug.storage.batch import Entry, StepBatch

logger = logging.getLogger("smdebug.hook")


class SagemakerMetricsFile:
    """Writes losses, metrics, and scalars saved with `sm_metric=True`, as they come.

    The value of a tensor is its mean. Non-finite values are skipped: the platform does not accept
    them.

    Args:
        directory: where the platform looks for the file.
    """

    def __init__(self, directory: str) -> None:
        self._path = Path(directory) / f"{os.getpid()}.json"
        self._failed = False

    def take(self, batch: StepBatch, requests: Mapping[str, SaveRequest]) -> None:
        """Append the metrics of a batch to the file."""
        names = {name for name, request in requests.items() if _is_metric(request)}
        if not names or self._failed:
            return
        lines = [line for entry in batch.all_entries() if entry.name in names
                 for line in _lines(entry, batch)]  # fmt: skip
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # The platform reads while the job writes: whole lines, at once.
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(lines))
        except OSError as error:
            self._failed = True
            logger.warning("Stopped writing SageMaker metrics; the run is not affected: %s", error)

    def flush(self) -> None:
        """Do nothing: there is no pending data."""

    def close(self) -> None:
        """Do nothing: no file is open."""


def _is_metric(request: SaveRequest) -> bool:
    return not SM_METRIC_COLLECTIONS.isdisjoint(request.collections)


def _lines(entry: Entry, batch: StepBatch) -> Iterator[str]:
    value = _number(entry)
    if value is not None and math.isfinite(value):
        line: dict[str, Any] = {
            "MetricName": f"{entry.name}_{batch.mode.name}",
            "Value": value,
            "Timestamp": batch.time if entry.time is None else entry.time,
            "IterationNumber": batch.mode_step,
        }
        yield json.dumps(line) + "\n"


def _number(entry: Entry) -> float | None:
    """Return the mean of a tensor; None for strings and for tensors without elements."""
    if entry.value is None:
        return entry.reductions.get("mean")
    if entry.value.dtype.kind in "USOc" or not entry.value.size:
        return None
    return float(np.mean(entry.value, dtype=np.float64))
