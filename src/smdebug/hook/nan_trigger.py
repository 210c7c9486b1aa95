"""`when_nan`: a step at which an observed tensor is non-finite is saved, whatever the schedule."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    if config is None or adapter.is_finite(tensor):
        return
    logger.info("step %d: %s is not finite", current.step.number, name)
    after = current.plan = pipeline.plan.triggered(before, config)
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
