"""Tensors that are zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Column, Frame
    from smdebug.trials.index_rows import Bools, Floats
    from smdebug.trials.trial import Trial

# Each is 0 when all elements are, and only then.
_SIZES = ("abs_max", "l1", "l2", "abs_mean")


class AllZero(Rule):
    """Fires when the percentage of zeros in a tensor is at or above a threshold.

    The percentage is 100 * zeros / number of elements. Where `zeros` was not saved, a tensor whose
    abs_max, l1, l2 or abs_mean is 0, or whose min and max both are, has 100 percent; of any other
    it is then not known, which matters only to thresholds below 100. An empty tensor has no
    percentage.

    Args:
        base_trial: the trial to look at.
        collection_names: collections to look at: a list or a string with commas. This or
            `tensor_regex` must be given.
        tensor_regex: regexes of tensors to look at: a list or a string with commas.
        threshold: the percentage from which it fires.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["AllZero:collection_names=gradients"])  # doctest: +SKIP
    """

    reads = ("zeros", *_SIZES, "min", "max")

    def __init__(
        self,
        base_trial: Trial | None,
        collection_names: Any = None,
        tensor_regex: Any = None,
        threshold: Any = 100,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.threshold = validation.number("threshold", threshold, minimum=0, maximum=100)
        self.tensors = self.choose_given(collection_names, tensor_regex)

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The number of zeros of the chosen tensors."""
        return self.tensors.needs("all_zero", ("zeros",))

    def check(self, frame: Frame) -> Iterable[Finding]:
        """Compares the percentage of every tensor with the threshold."""
        seen = self.tensors.seen
        table = frame.where_saved(self.tensors)
        percent = self._percent(frame, table)
        table = table.with_values(percent, ~np.isnan(percent))
        # A reduction that leaves the percentage open has not been of use.
        self.tensors.seen = seen or bool(table.present.any())

        def sentence(column: Column, value: float) -> str:
            share = "all" if value == 100 else f"{value:.3g} percent"
            return f"{share} of {column.tensor} is zero; the limit is {self.threshold:g} percent"

        return self.findings_where(
            frame, table, percent >= self.threshold, sentence, self.threshold
        )

    def _percent(self, frame: Frame, table: Frame) -> Floats:
        """How much of each tensor is zero; NaN where it is not known."""
        sizes = table.sizes(unknown=-1)
        zeros, counted = self.read_cells(table, "zeros", self.tensors)
        with np.errstate(invalid="ignore", divide="ignore"):
            percent = np.where(counted & (sizes > 0), 100 * zeros / sizes, np.nan)
        unknown = ~np.isfinite(percent) & (sizes != 0)
        if not (unknown & table.present).any():
            return percent
        empty, full = self._from_sizes(frame, table, unknown)
        percent = np.where(unknown & empty, 100.0, percent)
        # Less than everything is all that is to be known.
        return np.where(unknown & full, 0.0, percent) if self.threshold == 100 else percent

    def _from_sizes(self, frame: Frame, table: Frame, where: Bools) -> tuple[Bools, Bools]:
        """Where other reductions say that everything is zero, and where that something is not."""
        zero, other = np.zeros(where.shape, bool), np.zeros(where.shape, bool)
        for name in _SIZES:
            values, known = self.read_cells(table, name, self.tensors, where)
            zero |= known & (values == 0)
            other |= known & (values != 0)
        least, least_known = self.read_cells(table, "min", self.tensors, where)
        most, most_known = self.read_cells(table, "max", self.tensors, where)
        both = least_known & most_known
        zero |= both & (least == 0) & (most == 0)
        other |= (least_known & (least != 0)) | (most_known & (most != 0))
        return zero & ~other, other
