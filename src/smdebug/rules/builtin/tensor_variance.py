"""Tensors whose elements vary too much or too little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.exceptions import SMDebugValueError
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Frame
    from smdebug.trials.trial import Trial


class TensorVariance(Rule):
    """Fires when the variance of the elements of a tensor is above or below a threshold.

    The variance is that of the population, mean((x - mean(x))**2), or the square of the saved std.
    A tensor of one element has none.

    Args:
        base_trial: the trial to look at.
        collection_names: collections to look at: a list or a string with commas. This or
            `tensor_regex` must be given.
        tensor_regex: regexes of tensors to look at: a list or a string with commas.
        max_threshold: the largest variance that is in order; None for any. This or
            `min_threshold` must be given.
        min_threshold: the smallest variance that is in order; None for any.
        action_str: what to do when it fires; see `Rule`.

    Raises:
        SMDebugValueError: nothing to look at, or no threshold.

    Example:
        >>> rule = "TensorVariance:collection_names=weights,max_threshold=10"
        >>> run_rules("/tmp/run", [rule])  # doctest: +SKIP
    """

    reads = ("variance", "std")

    def __init__(
        self,
        base_trial: Trial | None,
        collection_names: Any = None,
        tensor_regex: Any = None,
        max_threshold: Any = None,
        min_threshold: Any = None,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.max_threshold = _limit("max_threshold", max_threshold)
        self.min_threshold = _limit("min_threshold", min_threshold)
        if self.max_threshold is None and self.min_threshold is None:
            raise SMDebugValueError(
                "TensorVariance must be told max_threshold or min_threshold, got neither"
            )
        self.tensors = self.choose_given(collection_names, tensor_regex)

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The variance of the chosen tensors."""
        return self.tensors.needs("tensor_variance", ("variance",))

    def check(self, frame: Frame) -> Iterator[Finding]:
        """Compares the variance of every tensor with the thresholds."""
        table = frame.where_saved(self.tensors)
        variance, known = self.read_cells(table, "variance", self.tensors)
        deviation, given = self.read_cells(table, "std", self.tensors, ~known)
        with np.errstate(over="ignore"):
            variance = np.where(given, np.square(deviation), variance)
        known = (known | given) & (table.sizes() != 1)
        variances = table.with_values(variance, known)
        yield from self._beyond("max", self.max_threshold, variances, frame)
        yield from self._beyond("min", self.min_threshold, variances, frame)

    def _beyond(
        self, side: str, limit: float | None, table: Frame, frame: Frame
    ) -> Iterable[Finding]:
        if limit is None:
            return ()
        holds = table.values > limit if side == "max" else table.values < limit
        what = "above" if side == "max" else "below"
        return self.findings_where(
            frame,
            table,
            holds,
            lambda column, value: (
                f"the variance of {column.tensor} is {value:.3g}, {what} {limit:.3g}"
            ),
            limit,
            about=side,
        )


def _limit(name: str, value: Any) -> float | None:
    return None if value is None else validation.number(name, value, minimum=0)
