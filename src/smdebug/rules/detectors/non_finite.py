"""Which tensors are not finite, found out from whatever was saved of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from smdebug.rules.rule import Rule
    from smdebug.rules.tensor_choice import TensorChoice
    from smdebug.trials.frame import Frame
    from smdebug.trials.index_rows import Bools, Floats

# XGBoost writes NaN into these on purpose: a leaf has no split, `missing` is NaN by default.
MEASURED = "^(?!trees/|hyperparameters/)"

# Inputs and outputs of layers: PyTorch and MXNet, Keras, and what Keras gives of the model itself.
DATA = (
    r"^(?!gradient).*_(input|output)_",
    r"^(?!gradient).*/(inputs|outputs)(?![a-zA-Z])",
    r"^(inputs|labels|predictions)(_\d+)?$",
)
# A loss of -inf is never meant.
_LOSS = r"[Ll]oss.*_output_"

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

    table: Frame
    nan: Bools
    inf: Bools
    bad: Bools
    nans: Floats
    counted: Floats
    known: Bools


def non_finite_cells(rule: Rule, frame: Frame, choice: TensorChoice) -> NonFiniteCells:
    """Finds out which of the chosen tensors are not finite.

    The counts `nans` and `infs` say it. Where they were not saved, other reductions do: they are
    not finite themselves when the tensor is not.
    """
    table = frame.where_saved(choice)
    nans, nans_known = rule.read_cells(table, "nans", choice)
    infs, infs_known = rule.read_cells(table, "infs", choice)
    nan, inf, known = nans > 0, infs > 0, nans_known | infs_known
    # NaN where one of them is.
    bad, counted, open_cells = nan | inf, nans + infs, ~(nans_known & infs_known)
    if not (open_cells & table.present).any():
        return NonFiniteCells(table, nan, inf, bad, nans, counted, known)
    sizes = table.sizes(unknown=-1)
    for clue in CLUES:
        values, given = rule.read_cells(table, clue, choice, open_cells)
        # The empty tensor has no mean, and one number, in old runs, no deviation.
        given &= (sizes != 0) & ((sizes != 1) | (clue != "std"))
        known = known | given
        bad = bad | (given & ~np.isfinite(values))
        inf = inf | (given & np.isinf(values))
        if clue in _OF_NAN:
            nan = nan | (given & np.isnan(values))
    return NonFiniteCells(table, nan, inf, bad, nans, counted, known)


def masked_cells(rule: Rule, frame: Frame, choice: TensorChoice, found: NonFiniteCells) -> Bools:
    """Where an input or output of a layer is not finite only because of -inf, as masks are."""
    data = [_is_data(column.tensor) for column in found.table.columns]
    maybe = found.inf & ~found.nan & np.array(data, bool)
    largest, known = rule.read_cells(found.table, "max", choice, maybe)
    masked: Bools = maybe & known & (largest < np.inf)
    return masked


def _is_data(tensor: str) -> bool:
    if re.search(_LOSS, tensor):
        return False
    return any(re.search(pattern, tensor) for pattern in DATA)
