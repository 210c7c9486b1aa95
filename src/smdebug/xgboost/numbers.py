"""Numbers that come together: metrics, and what is known of each feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smdebug.hook.capture import TakenNumbers
from smdebug.storage.batch import Layout

if TYPE_CHECKING:
    from smdebug.hook.capture import StepCapture
    from smdebug.hook.plan import Want
    from smdebug.reductions import Array

# How many sets of names that came together are remembered.
_MOST_LAYOUTS = 64


class Numbers:
    """Takes numbers in one go.

    A row each would cost the writer's thread time that training has to wait for.
    """

    def __init__(self) -> None:
        self._layouts: dict[object, Layout] = {}

    def take(
        self, tensors: list[tuple[str, Array]], capture: StepCapture
    ) -> list[tuple[str, Array]]:
        """Takes those tensors that are numbers.

        Args:
            tensors: names and values.
            capture: the step they are of, which has a plan.

        Returns:
            The others.
        """
        assert capture.plan is not None
        groups: dict[Want, list[tuple[str, Array]]] = {}
        rest = []
        for name, tensor in tensors:
            want = capture.plan.want(name) if _is_number(tensor) else None
            if want is None or want.reductions or not want.raw:
                rest.append((name, tensor))
            else:
                groups.setdefault(want, []).append((name, tensor))
        for want, group in groups.items():
            numbers = [tensor.item() for _, tensor in group]
            capture.add(TakenNumbers(self._layout(group), numbers, want))
        return rest

    def _layout(self, group: list[tuple[str, Array]]) -> Layout:
        names = tuple(name for name, _ in group)
        kinds = tuple((tensor.dtype.name, tensor.shape) for _, tensor in group)
        if (names, kinds) not in self._layouts:
            if len(self._layouts) >= _MOST_LAYOUTS:
                # Other features at every round, as there are at first.
                self._layouts.clear()
            dtypes, shapes = tuple(each for each, _ in kinds), tuple(each for _, each in kinds)
            self._layouts[names, kinds] = Layout(names, dtypes, shapes)
        return self._layouts[names, kinds]


def _is_number(tensor: Array) -> bool:
    """Whether float64 holds all of a tensor, bit for bit."""
    if tensor.size != 1 or tensor.dtype.kind != "f":
        return False
    # A NaN has bits that only its own type keeps.
    return tensor.dtype == np.float64 or bool(np.isfinite(tensor).all())
