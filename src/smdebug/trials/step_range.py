"""The range of global steps a trial may be limited to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.exceptions import SMDebugValueError

if TYPE_CHECKING:
    from smdebug.reductions import Array


def checked_range(range_steps: Any) -> tuple[int | None, int | None]:
    """Returns (first, end) of a `range_steps` argument, or says what is wrong with it."""
    if range_steps is None:
        return None, None
    if isinstance(range_steps, (tuple, list)) and len(range_steps) == 2:
        begin, end = (int(b) if isinstance(b, np.integer) else b for b in range_steps)
        if all(bound is None or _is_step(bound) for bound in (begin, end)) and (
            begin is None or end is None or begin < end
        ):
            return begin, end
    raise SMDebugValueError(
        "range_steps must be (first, end) of global steps with first < end, either of them None, "
        f"got {range_steps!r}"
    )


def _is_step(bound: Any) -> bool:
    return isinstance(bound, int) and not isinstance(bound, bool) and bound >= 0


def in_range(steps: Array, begin: int | None, end: int | None) -> Array:
    """A mask of the steps within a range."""
    low = -1 if begin is None else begin
    return steps >= low if end is None else (steps >= low) & (steps < end)
