"""Attaching to MXNet: the outermost block that a trainer trains, and its losses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import mxnet as mx

from smdebug.hook.handles import Callback, Handle
from smdebug.hook.patch import patch
from smdebug.instrument.root_calls import RootCalls
from smdebug.mode_keys import ModeKeys
from smdebug.mxnet.hook import Hook

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from smdebug.instrument.job import InstrumentedJob

logger = logging.getLogger("smdebug.instrument")


class MxnetWatch:
    """Registers what training calls, as a script of one's own would.

    A block counts when a `Trainer` holds one of its parameters, and when no other block calls it.
    When another trainer is made, its block takes the place of the one before.

    Args:
        job: has the hook.
    """

    def __init__(self, job: InstrumentedJob) -> None:
        self._job = job
        self._trained: list[Any] = []
        self._handles: list[Any] = []
        patch(mx.gluon.Trainer, "__init__", self._telling_trainer)
        outermost = RootCalls(lambda: bool(self._trained), self._called)
        patch(mx.gluon.Block, "__call__", outermost.telling)
        patch(mx.gluon.loss.Loss, "__call__", self._telling_loss)

    # ---- what stands in the place of MXNet's functions

    def _telling_trainer(self, init: Callable[..., None]) -> Callable[..., None]:
        def telling(trainer: Any, params: Any, *args: Any, **kwargs: Any) -> None:
            init(trainer, params, *args, **kwargs)
            self._trained = list(params.values() if hasattr(params, "values") else params)

        return telling

    def _telling_loss(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def loss_call(loss: Any, *args: Any, **kwargs: Any) -> Any:
            hook = self._hook()
            if hook is not None and loss not in hook.registered_blocks:
                hook.register_block(loss)
            return call(loss, *args, **kwargs)

        return loss_call

    # ---- finding the block

    def _hook(self) -> Hook | None:
        """The hook, once it watches something."""
        made = self._job.made
        if not isinstance(made, Hook) or made.closed or not self._handles:
            return None
        return made

    def _called(self, block: Any) -> None:
        """Registers an outermost block, if it is the one that is trained."""
        held = {id(each) for each in self._trained}
        if not any(id(each) in held for each in block.collect_params().values()):
            return
        # Found, or nobody wants it: nothing more is looked for.
        self._trained = []
        hook = self._job.hook(Hook)
        if hook is None:
            return
        for handle in self._handles:
            handle.remove()
        self._handles = []

        def follow(called: Any, taken: Any) -> None:
            training = mx.autograd.is_training()
            hook.set_mode(ModeKeys.TRAIN if training else ModeKeys.EVAL)

        # Before the hook's own: it begins the step.
        mode = block.register_forward_pre_hook(Callback(follow))
        self._handles = [Handle(mode.detach), hook.register_block(block)]
        logger.info("the hook watches %s", block.name)


def instrument(job: InstrumentedJob, package: ModuleType) -> None:
    """Instruments the package."""
    MxnetWatch(job)
