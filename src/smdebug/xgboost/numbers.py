"""Numbers that come together: metrics, and what is known of each feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.hook.capture import ScalarsCapture
from smdebug.storage.batch import BlockSchema

if TYPE_CHECKING:
    from smdebug.hook.capture import StepCapture
    from smdebug.hook.plan import SaveRequest
    from smdebug.xgboost.source import Named

# How many sets of names that came together are remembered.
_MOST_LAYOUTS = 64


class Numbers:
    """Takes numbers in one go.

    A row each would cost the writer's thread time that training has to wait for.
    """

    def __init__(self) -> None:
        self._layouts: dict[tuple[str, ...], BlockSchema] = {}

    def take(self, tensors: list[Named], capture: StepCapture) -> list[Named]:
        """Takes those tensors that are numbers.

        Args:
            tensors: names and values.
            capture: the step they are of, which has a plan.

        Returns:
            The others.
        """
        plan = capture.plan
        assert plan is not None
        groups: dict[SaveRequest, list[tuple[str, float]]] = {}
        rest: list[Named] = []
        for name, value in tensors:
            if isinstance(value, float):
                want = plan.want(name)
                if want is not None and want.raw and not want.reductions:
                    groups.setdefault(want, []).append((name, value))
                    continue
            rest.append((name, value))
        for want, group in groups.items():
            names, numbers = zip(*group, strict=True)
            capture.add(ScalarsCapture(self._layout(names), list(numbers), want))
        return rest

    def _layout(self, names: tuple[str, ...]) -> BlockSchema:
        if names not in self._layouts:
            if len(self._layouts) >= _MOST_LAYOUTS:
                # Other features at every round, as there are at first.
                self._layouts.clear()
            count = len(names)
            self._layouts[names] = BlockSchema(names, ("float64",) * count, ((1,),) * count)
        return self._layouts[names]
