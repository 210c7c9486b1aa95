"""Losses and metrics that Keras reports after a batch or an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config.collection import CollectionKeys
from smdebug.hook.capture import ArrayCapture
from smdebug.hook.plan import SaveRequest
from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.tensors import to_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.hook.capture import Capture
    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import SavePlan
    from smdebug.reductions import Array

_METRIC = SaveRequest(raw=True, reductions=(), collections=(CollectionKeys.METRICS,))
_LOSS = SaveRequest(raw=True, reductions=(), collections=(CollectionKeys.LOSSES,))


class Metrics:
    """Saves losses and metrics.

    Args:
        pipeline: the pipeline.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        # The names saved at the last training step.
        self._saved: set[str] = set()
        # Whether each name is a loss, according to the collections of the plan.
        self._is_loss: dict[str, bool] = {}
        self._plan: SavePlan | None = None

    def begin_training_step(self) -> None:
        """Clear the names that the previous training step saved."""
        self._saved.clear()

    def offer_logs(self, logs: dict[str, Any]) -> None:
        """Offer what Keras reports at the end of a batch."""
        for name, value in _numbers(logs):
            self.offer(name, value)

    def offer(self, name: str, value: Any) -> None:
        """Offer a number at the current step, as a loss or a metric."""
        self._collect(name)
        current = self._pipeline.current
        if current is not None and current.plan is not None:
            self._pipeline.offer(name, value)
            if current.step.mode is ModeKeys.TRAIN and current.plan.request(name) is not None:
                self._saved.add(name)

    def save_epoch(self, logs: dict[str, Any]) -> None:
        """Save what Keras reports at the end of an epoch, unless its last batch saved the same."""
        captures: list[Capture] = []
        for name, value in _numbers(logs):
            if name not in self._saved:
                request = _LOSS if self._collect(name) else _METRIC
                self._pipeline.collections.remember(name, request.collections)
                captures.append(ArrayCapture(name, value, request))
                self._saved.add(name)
        if captures:
            # All at once: format v1 rewrites a step that is saved again.
            self._pipeline.put(captures)

    def _collect(self, name: str) -> bool:
        """Add a name to the metrics unless it is a loss; return whether it is a loss."""
        collections = self._pipeline.collections
        if self._plan is not collections.plan:
            # Collections may have been replaced.
            self._plan, self._is_loss = collections.plan, {}
        is_loss = self._is_loss.get(name)
        if is_loss is None:
            losses = collections.plan.collections.get(CollectionKeys.LOSSES)
            is_loss = self._is_loss[name] = losses is not None and losses.matches(name)
            if not is_loss:
                collections.add_tensor(CollectionKeys.METRICS, name)
        return is_loss


def _numbers(logs: dict[str, Any]) -> Iterator[tuple[str, Array]]:
    """Yield the numbers that Keras reports, as arrays of one element; other values are skipped."""
    for name, value in logs.items():
        if value is None:
            continue
        try:
            array = to_array(value)
        except (TypeError, ValueError):
            continue
        if array.size == 1 and array.dtype.kind in "biuf":
            yield name, array.reshape(1).astype(np.int64 if isinstance(value, int) else np.float64)
