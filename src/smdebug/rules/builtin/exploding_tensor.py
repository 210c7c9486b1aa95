"""Tensors that hold NaN or infinity."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.config import checks
from smdebug.config.collection import CollectionKeys
from smdebug.config.need import Need
from smdebug.rules.column_rule import ColumnRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.rules.block import Bools, Column, Floats, StepBlock, Table
    from smdebug.rules.choice import TensorChoice
    from smdebug.storage.findings import Finding
    from smdebug.trials.trial import Trial

# XGBoost writes NaN into these on purpose: a leaf has no split, `missing` is NaN by default.
MEASURED = "^(?!trees/|hyperparameters/)"

COUNTS = ("nans", "infs")
# NaN in one of these comes of a NaN. In the mean it may also come of infinities that cancel.
_OF_NAN = ("min", "max", "abs_max", "l1", "l2", "abs_mean")
_OF_EITHER = ("mean", "std")
CLUES = (*_OF_NAN, *_OF_EITHER)


class NonFiniteCells(NamedTuple):
    """Which tensors are not finite, and where.

    Attributes:
        table: the steps and columns.
        nan: where a tensor holds NaN.
        inf: where it holds infinity.
        bad: where it holds either; also where it is not known which.
        nans: how many elements are NaN; NaN where that was not saved.
        counted: how many are either; NaN where that was not saved.
        known: where anything is known.
    """

    table: Table
    nan: Bools
    inf: Bools
    bad: Bools
    nans: Floats
    counted: Floats
    known: Bools


def non_finite_cells(rule: ColumnRule, block: StepBlock, choice: TensorChoice) -> NonFiniteCells:
    """Finds out which of the chosen tensors are not finite.

    The counts `nans` and `infs` say it. Where they were not saved, other reductions do: they are
    not finite themselves when the tensor is not.
    """
    table = block.cells(choice)
    nans, nans_known = rule.numbers(block, "nans", table, choice)
    infs, infs_known = rule.numbers(block, "infs", table, choice)
    nan, inf, known = nans > 0, infs > 0, nans_known | infs_known
    # NaN where one of them is.
    bad, counted, open_cells = nan | inf, nans + infs, ~(nans_known & infs_known)
    if not (open_cells & table.present).any():
        return NonFiniteCells(table, nan, inf, bad, nans, counted, known)
    sizes = block.sizes(table, unknown=-1)
    for clue in CLUES:
        values, given = rule.numbers(block, clue, table, choice, open_cells)
        # The empty tensor has no mean, and one number, in old runs, no deviation.
        given &= (sizes != 0) & ((sizes != 1) | (clue != "std"))
        known = known | given
        bad = bad | (given & ~np.isfinite(values))
        inf = inf | (given & np.isinf(values))
        if clue in _OF_NAN:
            nan = nan | (given & np.isnan(values))
    return NonFiniteCells(table, nan, inf, bad, nans, counted, known)


class ExplodingTensor(ColumnRule):
    """Fires when a tensor holds a value that is not finite: NaN or infinity.

    It reads the saved counts `nans` and `infs`. Where they are missing, a min, max, mean, std, l1,
    l2, abs_max or abs_mean that is not finite tells the same. With `only_nan`, infinities are no
    fault; a mean that is NaN is then no proof either, for infinity minus infinity is NaN as well.

    By default it looks at all tensors but `trees/` and `hyperparameters/` of XGBoost, which hold
    NaN on purpose. A mask that holds -inf on purpose is found too: choose the tensors where there
    is one, or use NonFinite, which knows masks.

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
        self.only_nan = checks.boolean("only_nan", only_nan)
        self._is_told = bool(
            checks.comma_list("collection_names", collection_names)
            or checks.comma_list("tensor_regex", tensor_regex)
        )
        if not self._is_told:
            tensor_regex = MEASURED
        self.tensors = self.choose(collection_names, tensor_regex)

    def needs(self) -> tuple[Need, ...]:
        """The counts of the chosen tensors; when none are chosen, of weights and gradients."""
        if self._is_told:
            return self.tensors.needs("exploding_tensor", COUNTS)
        return (
            Need(CollectionKeys.LOSSES, raw=True),
            Need(CollectionKeys.GRADIENTS, COUNTS),
            Need(CollectionKeys.WEIGHTS, COUNTS),
        )

    def judge(self, block: StepBlock) -> Iterable[Finding]:
        """Looks for NaN and infinity in every chosen tensor."""
        found = non_finite_cells(self, block, self.tensors)
        holds, counts = (found.nan, found.nans) if self.only_nan else (found.bad, found.counted)
        table = dataclasses.replace(found.table, values=counts, present=found.known)
        what = "NaN" if self.only_nan else "NaN or infinite"

        def sentence(column: Column, value: float) -> str:
            if np.isnan(value):
                return f"{column.tensor} has exploded: it holds elements that are {what}"
            are = "is" if value == 1 else "are"
            return f"{column.tensor} has exploded: {value:.0f} of its elements {are} {what}"

        return self.hits(block, table, holds, sentence, 0.0)
