"""What is told of the steps of a run besides the run itself: the contract of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smdebug.hook.plan import SaveRequest
    from smdebug.storage.batch import StepBatch


class StepSink(Protocol):
    """Is told of every batch, on the writer's thread.

    One that fails says so and is silent from then on: the run matters more.
    """

    def take(self, batch: StepBatch, requests: Mapping[str, SaveRequest]) -> None:
        """Takes what it requests of a batch.

        Args:
            batch: tensors of one step.
            requests: for each tensor, by name, what is saved of it and who asked for that.
        """

    def flush(self) -> None:
        """Publishes what waits."""

    def close(self) -> None:
        """Is told that nothing more will come."""
