"""The elements of a tensor at a step: those that are finite, and how many are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from smdebug.exceptions import SMDebugValueError

if TYPE_CHECKING:
    from smdebug.reductions import Array
    from smdebug.trials.curves import Floats


@dataclass(frozen=True, eq=False)
class Elements:
    """The elements of a tensor at a step.

    Attributes:
        name: the tensor.
        step: the step.
        finite: the elements that are finite.
        nans: how many are NaN.
        infs: how many are infinite.
    """

    name: str
    step: int
    finite: Floats
    nans: int
    infs: int

    def summary(self) -> str:
        """Minimum, maximum, mean and deviation of what is finite, and how much is not."""
        parts = [self.bad()] if self.nans or self.infs else []
        if len(self.finite):
            with np.errstate(all="ignore"):
                low, high = self.finite.min(), self.finite.max()
                mean, std = self.finite.mean(), self.finite.std()
            parts = [f"min {low:.3g}, max {high:.3g}, mean {mean:.3g}, std {std:.3g}", *parts]
        return ", ".join(parts) or "no elements"

    def bad(self) -> str:
        """How many are not finite."""
        counts = ((self.nans, "NaN"), (self.infs, "Inf"))
        return ", ".join(f"{count:,} {kind}" for count, kind in counts if count)


def elements_of(array: Array, name: str, step: int) -> Elements:
    """The elements of an array.

    Raises:
        SMDebugValueError: they are no numbers that have an order.
    """
    if array.dtype.kind in "USOc":
        raise SMDebugValueError(f"{name} holds {array.dtype}, which has no histogram")
    flat = np.asarray(array).reshape(-1).astype(np.float64)
    finite = np.isfinite(flat)
    nans = int(np.isnan(flat).sum())
    return Elements(name, step, flat[finite], nans, int(len(flat) - finite.sum() - nans))
