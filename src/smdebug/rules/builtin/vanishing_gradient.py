"""Gradients that have become so small that nothing is learned from them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Frame
    from smdebug.trials.index_rows import Floats
    from smdebug.trials.trial import Trial


class VanishingGradient(Rule):
    """Fires when the mean of the absolute values of a gradient is below a threshold.

    The mean is that of the elements that have a gradient, where the run tells how many those are
    (`zeros`): in a batch most rows of a large embedding have none.

    The gradient of a bias is judged only where that of its weight was not saved: before a
    normalisation a bias has none to speak of, however well the layer learns.

    Args:
        base_trial: the trial to look at.
        threshold: the smallest mean that counts as a gradient.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["VanishingGradient:threshold=1e-6"])  # doctest: +SKIP
    """

    reads = ("abs_mean", "zeros")

    def __init__(
        self, base_trial: Trial | None, threshold: Any = 1e-7, action_str: Any = ""
    ) -> None:
        super().__init__(base_trial, action_str)
        self.threshold = validation.number("threshold", threshold, minimum=0)
        self.gradients = self.choose([CollectionKeys.GRADIENTS])
        # The step at which each gradient was first saved.
        self._first_step: dict[str, int] = {}

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The mean of the absolute values of every gradient, and how much of it is zero."""
        return (TensorRequirement(CollectionKeys.GRADIENTS, reductions=("abs_mean", "zeros")),)

    def start_over(self) -> None:
        """Forgets which gradients there are."""
        super().start_over()
        self._first_step.clear()

    def check(self, frame: Frame) -> Iterable[Finding]:
        """Compares every gradient with the threshold."""
        table = self.read(frame, "abs_mean", self.gradients)
        for place, column in enumerate(table.columns):
            first = int(table.steps[np.argmax(table.present[:, place])])
            self._first_step[column.tensor] = min(first, self._first_step.get(column.tensor, first))
        means = table.values / self._share(frame, table)
        has_weight = [self._weight_since(column.tensor) for column in table.columns]
        judged = table.steps[:, None] < np.array(has_weight)
        return self.findings_where(
            frame,
            table,
            (means < self.threshold) & judged,
            lambda column, value: (
                f"{column.tensor} has vanished: the mean of its absolute values is {value:.3g}, "
                f"below {self.threshold:.3g}"
            ),
            self.threshold,
            means,
        )

    def _share(self, frame: Frame, table: Frame) -> Floats:
        """The share of elements that are not zero; 1 where it is not known, or nothing is."""
        zeros, known = table.read("zeros")
        sizes = table.sizes()
        share = 1 - zeros / np.maximum(sizes, 1)
        return np.where(known & (sizes > 0) & (share > 0), share, 1.0)

    def _weight_since(self, tensor: str) -> float:
        """Return since which step the gradient of a bias has that of its weight next to it."""
        if "bias" not in tensor:
            return math.inf
        # PyTorch and MXNet call it weight, Keras kernel.
        names = [tensor.replace("bias", word) for word in ("weight", "kernel")]
        return min(self._first_step.get(name, math.inf) for name in names)
