"""Gradients that have become so small that nothing is learned from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.rules.column_rule import ColumnRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Frame
    from smdebug.trials.index_rows import Floats
    from smdebug.trials.trial import Trial


class VanishingGradient(ColumnRule):
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
        self._names: set[str] = set()

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The mean of the absolute values of every gradient, and how much of it is zero."""
        return (TensorRequirement(CollectionKeys.GRADIENTS, reductions=("abs_mean", "zeros")),)

    def start_over(self) -> None:
        """Forgets which gradients there are."""
        super().start_over()
        self._names.clear()

    def judge(self, block: Frame) -> Iterable[Finding]:
        """Compares every gradient with the threshold."""
        table = self.table(block, "abs_mean", self.gradients)
        self._names |= {column.tensor for column in table.columns}
        means = table.values / self._share(block, table)
        judged = np.array([not self._has_weight(column.tensor) for column in table.columns], bool)
        return self.hits(
            block,
            table,
            (means < self.threshold) & judged,
            lambda column, value: (
                f"{column.tensor} has vanished: the mean of its absolute values is {value:.3g}, "
                f"below {self.threshold:.3g}"
            ),
            self.threshold,
            means,
        )

    def _share(self, block: Frame, table: Frame) -> Floats:
        """The share of elements that are not zero; 1 where it is not known, or nothing is."""
        zeros, known = table.read("zeros")
        sizes = table.sizes()
        share = 1 - zeros / np.maximum(sizes, 1)
        return np.where(known & (sizes > 0) & (share > 0), share, 1.0)

    def _has_weight(self, tensor: str) -> bool:
        """Whether a gradient is that of a bias whose weight has one as well."""
        # PyTorch and MXNet call it weight, Keras kernel.
        return any(
            tensor.replace("bias", word) in self._names
            for word in ("weight", "kernel")
            if "bias" in tensor
        )
