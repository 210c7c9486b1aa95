"""`when_nan`: a step at which a watched tensor is not finite saves what came before it, too."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smdebug.config.save_config import SaveConfigMode
    from smdebug.hook.base import BaseHook
    from smdebug.hook.capture import StepCapture
    from smdebug.hook.plan import StepPlan

logger = logging.getLogger("smdebug.hook")


def watch(hook: BaseHook, capture: StepCapture, name: str, tensor: Any) -> None:
    """Looks whether a watched tensor is finite; keeps those that are saved if one is not.

    Args:
        hook: knows about the tensors of its framework.
        capture: the present step, whose plan is armed.
        name: the tensor's name.
        tensor: the tensor.
    """
    plan = capture.plan
    assert plan is not None
    if plan.may_want(name):
        held = hook._hold(tensor)
        capture.held[name] = (held, hook._version(held))
    config = plan.watcher(name)
    if config is not None and not hook._is_finite(tensor):
        logger.info("step %d: %s is not finite", capture.step.number, name)
        _take_held(hook, capture, name, plan, config)


def _take_held(
    hook: BaseHook, capture: StepCapture, culprit: str, before: StepPlan, config: SaveConfigMode
) -> None:
    """Goes on with the plan of a step that is not finite, and takes what was kept for it."""
    after = capture.plan = hook._plan.triggered(before, config)
    for name, (held, version) in capture.held.items():
        want = after.want(name) if before.want(name) is None else None
        if want is None:
            continue
        if hook._version(held) == version:
            taken = hook._take(name, held, want)
            if taken is not None:
                capture.add(taken)
        else:
            logger.warning(
                "step %d: %s was not finite, but %s had been overwritten by then and is not "
                "saved", capture.step.number, culprit, name,
            )  # fmt: skip
