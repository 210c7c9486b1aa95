"""`when_nan`: a step at which an observed tensor is non-finite is saved, whatever the schedule."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from smdebug.config.save_config import SaveConfigMode
    from smdebug.hook.capture import StepCapture
    from smdebug.hook.pipeline import Pipeline

logger = logging.getLogger("smdebug.hook")


def observe(pipeline: Pipeline, current: StepCapture, name: str, tensor: Any) -> None:
    """Hold a tensor that may have to be saved, and save the step if an observed one is non-finite.

    Args:
        pipeline: the pipeline of the step.
        current: the step, whose plan is armed.
        name: the tensor's name.
        tensor: the tensor.
    """
    adapter, before = pipeline.adapter, current.plan
    assert before is not None
    if before.may_save(name):
        held = adapter.hold(tensor)
        current.held[name] = (held, adapter.version(held))
    config = before.trigger(name)
    if config is not None and not adapter.is_finite(tensor):
        _trigger(pipeline, current, name, config)


def observe_user_save(pipeline: Pipeline, name: str, tensor: Any) -> set[str]:
    """Save the current step if a tensor that the user saves at it is observed and non-finite.

    Args:
        pipeline: the pipeline.
        name: the tensor's name.
        tensor: a tensor of the framework, or an array.

    Returns:
        The names of the collections that are saved at the step because of `when_nan`.
    """
    current, adapter = pipeline.current, pipeline.adapter
    if current is None or current.plan is None or current.step != pipeline.steps.current():
        return set()
    config = current.plan.trigger(name)
    if config is not None:
        is_tensor = adapter.is_tensor(tensor)
        if not (adapter.is_finite(tensor) if is_tensor else is_finite_array(tensor)):
            _trigger(pipeline, current, name, config)
    return current.triggered


def is_finite_array(array: npt.NDArray[Any]) -> bool:
    """Return whether all elements of an array are finite; those that are not numbers are."""
    return array.dtype.kind not in "fcV" or bool(np.isfinite(array).all())


def _trigger(pipeline: Pipeline, current: StepCapture, name: str, config: SaveConfigMode) -> None:
    """Save a step from now on, and what was held of it."""
    adapter, before = pipeline.adapter, current.plan
    assert before is not None
    logger.info("step %d: %s is not finite", current.step.number, name)
    after = current.plan = pipeline.plan.triggered(before, config)
    current.triggered |= {each.name for each in pipeline.plan.group_of(before.mode, config)}
    for earlier, (held, version) in current.held.items():
        request = after.request(earlier)
        if request is None or request == before.request(earlier):
            continue
        if adapter.version(held) == version:
            capture = adapter.capture(earlier, held, request, current.last)
            if capture is not None:
                current.add(capture)
        else:
            logger.warning(
                "step %d: %s was not finite, but %s had been overwritten by then and is not "
                "saved", current.step.number, name, earlier,
            )  # fmt: skip
