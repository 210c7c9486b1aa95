"""The inputs and outputs of blocks.

Names are known before a block is called, so only blocks with a tensor that may be saved get forward
hooks. These stay while the steps are of the same kind, and are removed at the first one that saves
nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from smdebug.config.log import WarnOnce
from smdebug.hook.handles import Callback
from smdebug.hook.naming import StepNames, may_be_relevant, tensors_in
from smdebug.mxnet.naming import DEFAULT_COLLECTIONS
from smdebug.mxnet.tensors import NDArray

if TYPE_CHECKING:
    from collections.abc import Collection as Sized

    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import StepCache, StepPlan
    from smdebug.mxnet.forward_passes import ForwardPasses
    from smdebug.mxnet.registration import Registration

logger = logging.getLogger("smdebug.hook")

_KINDS = ("input", "output")
_SHOWN_NAMES = 3


class Activations:
    """Offers the inputs and outputs of blocks to the pipeline.

    Args:
        pipeline: the pipeline.
        forward_passes: the forward passes of registered blocks.

    Attributes:
        known_regexes: regexes without keys of tensors that were not seen yet; see
            `may_be_relevant`.
    """

    def __init__(self, pipeline: Pipeline, forward_passes: ForwardPasses) -> None:
        self._pipeline = pipeline
        self._forward_passes = forward_passes
        self.known_regexes = {each for group in DEFAULT_COLLECTIONS.values() for each in group}
        self._relevant: StepCache[bool] = pipeline.new_cache()
        self._names = StepNames()
        self._plan: StepPlan | None = None
        self._attached: list[tuple[Registration, int]] = []
        self._handles: dict[int, Any] = {}
        self._warnings = WarnOnce(logger)

    def begin_step(self) -> None:
        """Number the tensors from the start again."""
        self._names = StepNames()

    def attach(
        self, registrations: list[Registration], plan: StepPlan, excluded: Sized[Any]
    ) -> None:
        """Add hooks to the blocks inside registered ones whose tensors may be saved at a step.

        Args:
            registrations: the registered blocks.
            plan: the kind of step.
            excluded: blocks that have hooks of their own.
        """
        attached = [(each, each.version) for each in registrations]
        if plan is self._plan and attached == self._attached:
            return
        self.detach()
        self._plan, self._attached = plan, attached
        for registration in registrations:
            hidden = []
            for name, block, visible in registration.descendants:
                # A block may be inside two registered ones.
                if id(block) in self._handles or block in excluded:
                    continue
                if not any(self._is_relevant(plan, name, kind) for kind in _KINDS):
                    continue
                if visible:
                    handle = block.register_forward_hook(self._callback(name))
                    self._handles[id(block)] = handle
                elif any(plan.is_relevant(f"{name}_{kind}_0") for kind in _KINDS):
                    hidden.append(name)
            if hidden:
                self._warnings.warning(
                    "hidden",
                    "%s is hybridized, in whole or in part: inputs and outputs of the blocks "
                    "inside it (%s) are not visible and not saved; parameters, gradients, and its "
                    "own inputs and outputs are. Call hybridize(active=False) to save them all, or "
                    "hybridize only smaller parts",
                    registration.name,
                    ", ".join([*hidden[:_SHOWN_NAMES], *["..."] * (len(hidden) > _SHOWN_NAMES)]),
                )

    def detach(self) -> None:
        """Remove the hooks from the blocks."""
        self._plan = None
        handles, self._handles = self._handles, {}
        for handle in handles.values():
            handle.detach()

    def offer(self, plan: StepPlan, name: str, inputs: Any, outputs: Any) -> None:
        """Name and offer the inputs and outputs of one call of a block."""
        for kind, value in zip(_KINDS, (inputs, outputs), strict=True):
            if self._is_relevant(plan, name, kind):
                # There are none where MXNet calls a block with symbols to make a graph of it.
                for keys, array in tensors_in(value, NDArray):
                    self._pipeline.offer(self._names.next(name, kind, keys), array)

    def _is_relevant(self, plan: StepPlan, name: str, kind: str) -> bool:
        return self._relevant.get(
            plan, (name, kind), lambda: may_be_relevant(plan, name, kind, self.known_regexes)
        )

    def _callback(self, name: str) -> Callback:
        def after(block: Any, inputs: Any, outputs: Any) -> None:
            plan = self._plan
            if plan is not None and self._forward_passes.running():
                with self._pipeline.guarded:
                    self.offer(plan, name, inputs, outputs)

        return Callback(after)
