"""TensorBoard files of a run: scalars and histograms, written while it is saved."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from smdebug.config.collection import NON_REDUCTION_COLLECTIONS
from smdebug.storage.tensorboard.files import ModeFiles, number_event, tensor_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from smdebug.hook.plan import SaveRequest
    from smdebug.storage.batch import Entry, StepBatch
    from smdebug.storage.stores.base import Buffer

logger = logging.getLogger("smdebug.hook")


class TensorboardSink:
    """Writes scalars and histograms of a run for TensorBoard.

    Args:
        directory: a directory or a URL; each mode gets a directory in it.
        worker: the worker if it is not the first one, which has separate files.
    """

    def __init__(self, directory: str, worker: str | None = None) -> None:
        self._files = ModeFiles(directory, worker)
        self._failed = False

    def take(self, batch: StepBatch, requests: Mapping[str, SaveRequest]) -> None:
        """Write the scalars and histograms of a batch."""
        if self._failed:
            return
        events = [event for entry in batch.all_entries() if entry.name in requests
                  for event in _events(entry, requests[entry.name], batch)]  # fmt: skip
        if events:
            self._try(lambda: self._files.write(batch.mode, batch.step, batch.time, events))

    def flush(self) -> None:
        """Publish pending data."""
        if not self._failed:
            self._try(self._files.flush)

    def close(self) -> None:
        """Publish pending data and close the files."""
        self._try(self._files.close)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._failed = True
            logger.warning("Stopped writing TensorBoard files; the run is not affected: %s", error)


def _events(entry: Entry, request: SaveRequest, batch: StepBatch) -> Iterator[list[Buffer]]:
    moment = batch.time if entry.time is None else entry.time
    if not NON_REDUCTION_COLLECTIONS.isdisjoint(request.collections):
        if entry.number is not None:
            yield number_event(entry.name, entry.number, step=batch.step, wall_time=moment)
        return
    group = request.collections[0] if request.histogram is None else request.histogram
    yield from tensor_events(
        group, entry.name, entry.reductions, entry.histogram, step=batch.step, wall_time=moment
    )
