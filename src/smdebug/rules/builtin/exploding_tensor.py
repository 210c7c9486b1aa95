"""Tensors that hold NaN or infinity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.rule_requirements import TensorRequirement
from smdebug.rules.detectors.non_finite import (
    CLUES,
    COUNTS,
    MEASURED,
    masked_cells,
    non_finite_cells,
)
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.storage.findings import Finding
    from smdebug.trials.frame import Column, Frame
    from smdebug.trials.trial import Trial


class ExplodingTensor(Rule):
    """Fires when a tensor holds a value that is not finite: NaN or infinity.

    It reads the saved counts `nans` and `infs`. Where they are missing, a min, max, mean, std, l1,
    l2, abs_max or abs_mean that is not finite tells the same. With `only_nan`, infinities are no
    fault; a mean that is NaN is then no proof either, for infinity minus infinity is NaN as well.

    By default it looks at all tensors but `trees/` and `hyperparameters/` of XGBoost, which hold
    NaN on purpose. Of inputs and outputs of layers, -inf alone is no fault then: masks are made of
    it.

    Args:
        base_trial: the trial to look at.
        collection_names: collections to look at: a list or a string with commas.
        tensor_regex: regexes of tensors to look at: a list or a string with commas.
        only_nan: only NaN counts, not infinity.
        action_str: what to do when it fires; see `Rule`.

    Example:
        >>> run_rules("/tmp/run", ["ExplodingTensor:only_nan=true"])  # doctest: +SKIP
    """

    reads = (*COUNTS, *CLUES)

    def __init__(
        self,
        base_trial: Trial | None,
        collection_names: Any = None,
        tensor_regex: Any = None,
        only_nan: Any = False,
        action_str: Any = "",
    ) -> None:
        super().__init__(base_trial, action_str)
        self.only_nan = validation.boolean("only_nan", only_nan)
        self._is_told = bool(
            validation.comma_list("collection_names", collection_names)
            or validation.comma_list("tensor_regex", tensor_regex)
        )
        if not self._is_told:
            tensor_regex = MEASURED
        self.tensors = self.choose(collection_names, tensor_regex)

    def needs(self) -> tuple[TensorRequirement, ...]:
        """The counts of the chosen tensors; when none are chosen, of weights and gradients."""
        if self._is_told:
            return self.tensors.needs("exploding_tensor", COUNTS)
        return (
            TensorRequirement(CollectionKeys.LOSSES, raw=True),
            TensorRequirement(CollectionKeys.GRADIENTS, COUNTS),
            TensorRequirement(CollectionKeys.WEIGHTS, COUNTS),
        )

    def check(self, frame: Frame) -> Iterable[Finding]:
        """Looks for NaN and infinity in every chosen tensor."""
        found = non_finite_cells(self, frame, self.tensors)
        holds, counts = (found.nan, found.nans) if self.only_nan else (found.bad, found.counted)
        if not self._is_told:
            holds = holds & ~masked_cells(self, frame, self.tensors, found)
        table = found.table.with_values(counts, found.known)
        what = "NaN" if self.only_nan else "NaN or infinite"

        def sentence(column: Column, value: float) -> str:
            if np.isnan(value):
                return f"{column.tensor} has exploded: it holds elements that are {what}"
            are = "is" if value == 1 else "are"
            return f"{column.tensor} has exploded: {value:.0f} of its elements {are} {what}"

        return self.findings_where(frame, table, holds, sentence, 0.0)
