"""Instrument MXNet: register the root block that a trainer updates, and its losses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import mxnet as mx

from smdebug.hook.handles import Callback, Handle
from smdebug.hook.patch import patch
from smdebug.instrument.calls import report_root_calls
from smdebug.mode_keys import ModeKeys
from smdebug.mxnet.hook import Hook

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from smdebug.instrument.job import InstrumentedJob

logger = logging.getLogger("smdebug.instrument")


def instrument(job: InstrumentedJob, package: ModuleType) -> None:
    """Register the blocks and losses that training calls."""
    BlockRegistration(job)


class BlockRegistration:
    """Registers what training calls, as manual instrumentation would.

    A block is registered if a `Trainer` holds one of its parameters and no other block calls it.
    The block of the next trainer replaces it.

    Args:
        job: creates the hook.
    """

    def __init__(self, job: InstrumentedJob) -> None:
        self._job = job
        # The parameters of the last trainer, until their block has been found.
        self._parameters: list[Any] = []
        self._handles: list[Any] = []
        patch(mx.gluon.Trainer, "__init__", self._wrap_trainer_init)
        on_root_calls = report_root_calls(lambda: bool(self._parameters), self._on_root_call)
        patch(mx.gluon.Block, "__call__", on_root_calls)
        patch(mx.gluon.loss.Loss, "__call__", self._wrap_loss_call)

    def _wrap_trainer_init(self, init: Callable[..., None]) -> Callable[..., None]:
        def trainer_init(trainer: Any, params: Any, *args: Any, **kwargs: Any) -> None:
            init(trainer, params, *args, **kwargs)
            self._parameters = list(params.values() if hasattr(params, "values") else params)

        return trainer_init

    def _wrap_loss_call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def loss_call(loss: Any, *args: Any, **kwargs: Any) -> Any:
            hook: Any = self._job.hook
            is_active = self._handles and isinstance(hook, Hook) and not hook.closed
            if is_active and loss not in hook.registered_blocks:
                hook.register_block(loss)
            return call(loss, *args, **kwargs)

        return loss_call

    def _on_root_call(self, block: Any) -> None:
        """Register a root block if the trainer updates it."""
        updated = {id(each) for each in self._parameters}
        parameters = block.collect_params().values()
        if not any(id(each) in updated for each in parameters):
            return
        # The search ends here, also if the job gets no hook.
        self._parameters = []
        hook = self._job.hook_for(Hook)
        if hook is None:
            return
        for handle in self._handles:
            handle.remove()
        self._handles = []

        def set_mode(called: Any, inputs: Any) -> None:
            hook.set_mode(ModeKeys.TRAIN if mx.autograd.is_training() else ModeKeys.EVAL)

        # Before the callback of the hook, which begins the step.
        mode = block.register_forward_pre_hook(Callback(set_mode))
        self._handles = [Handle(mode.detach), hook.register_block(block)]
        logger.info("Attached to %s (%d parameters)", block.name, len(parameters))
