"""The protocol of destinations that receive steps in addition to the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smdebug.hook.plan import SaveRequest
    from smdebug.storage.batch import StepBatch


class StepSink(Protocol):
    """Receives every batch, on the writer thread.

    A sink that fails logs the error and ignores all further batches; the run is not affected.
    """

    def take(self, batch: StepBatch, requests: Mapping[str, SaveRequest]) -> None:
        """Write the tensors of a batch that this sink needs.

        Args:
            batch: tensors of one step.
            requests: what is saved of each tensor, by name, with its collections.
        """

    def flush(self) -> None:
        """Publish pending data."""

    def close(self) -> None:
        """Publish pending data and close; no more batches will come."""
