"""Numbers that are captured together: metrics, and what is known about each feature."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from smdebug.hook.capture import ScalarsCapture
from smdebug.storage.batch import BlockSchema

if TYPE_CHECKING:
    from smdebug.hook.capture import StepCapture
    from smdebug.hook.plan import SaveRequest, StepPlan
    from smdebug.xgboost.source import Named


def capture_scalars(tensors: list[Named], plan: StepPlan, capture: StepCapture) -> list[Named]:
    """Capture the numbers among some tensors that are saved raw.

    They become rows of one block: an entry each takes time on the writer thread that training has
    to wait for.

    Args:
        tensors: names and values.
        plan: the plan of the step.
        capture: receives them.

    Returns:
        The other tensors.
    """
    groups: dict[SaveRequest, list[tuple[str, float]]] = {}
    rest: list[Named] = []
    for name, value in tensors:
        request = plan.request(name) if isinstance(value, float) else None
        if isinstance(value, float) and request and request.raw and not request.reductions:
            groups.setdefault(request, []).append((name, value))
        else:
            rest.append((name, value))
    for request, group in groups.items():
        names, numbers = zip(*group, strict=True)
        capture.add(ScalarsCapture(_schema(names), list(numbers), request))
    return rest


# Early rounds each use other features: their schemas are not kept forever.
@lru_cache(maxsize=64)
def _schema(names: tuple[str, ...]) -> BlockSchema:
    return BlockSchema(names, ("float64",) * len(names), ((1,),) * len(names))
