"""What blocks take and return during the forward of a saving step.

Names are known before a block is called, so only those with a tensor that is wanted carry hooks.
They stay while step after step is of the same kind, and go with the first that saves nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from smdebug.hook.handles import Callback
from smdebug.hook.naming import StepNames, cares, tensors_in
from smdebug.mxnet.tensors import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Collection as Sized

    from smdebug.hook.plan import StepPlan
    from smdebug.mxnet.forwards import Forwards
    from smdebug.mxnet.registration import Registration

logger = logging.getLogger("smdebug.hook")

_KINDS = ("input", "output")
# How many names a message has.
_SHOWN = 3


class Activations:
    """Watches the blocks inside of registered ones.

    Args:
        offer: takes one tensor.
        entered: a context for everything done in a callback.
        forwards: says whether a block is called by a registered one.
        known_regexes: those that have nothing to say about names of tensors that were not seen yet;
            the hook adds to them.
    """

    def __init__(
        self,
        offer: Callable[[str, Any], None],
        entered: Callable[[], Any],
        forwards: Forwards,
        known_regexes: set[str],
    ) -> None:
        self._offer_tensor = offer
        self._entered = entered
        self._forwards = forwards
        self._known_regexes = known_regexes
        self._names = StepNames()
        self._plan: StepPlan | None = None
        self._watched: list[tuple[Registration, int]] = []
        self._handles: dict[int, Any] = {}
        self._told = False

    def begin_step(self) -> None:
        """Starts counting names anew."""
        self._names = StepNames()

    def watch(self, registrations: list[Registration], plan: StepPlan, besides: Sized[Any]) -> None:
        """Attaches to the blocks that matter at a step.

        Args:
            registrations: whose blocks.
            plan: the kind of step.
            besides: blocks that tell by themselves.
        """
        watched = [(each, each.version) for each in registrations]
        if plan is self._plan and watched == self._watched:
            return
        self.stop()
        self._plan, self._watched = plan, watched
        for registration in registrations:
            hidden = []
            for name, block, visible in registration.parts:
                # It may be a part of two.
                if id(block) in self._handles or block in besides or not self.cares(plan, name):
                    continue
                if visible:
                    handle = block.register_forward_hook(self._callback(name))
                    self._handles[id(block)] = handle
                elif any(plan.interesting(f"{name}_{kind}_0") for kind in _KINDS):
                    hidden.append(name)
            if hidden:
                self._tell(registration, hidden)

    def stop(self) -> None:
        """Takes the hooks off the blocks."""
        self._plan = None
        handles, self._handles = self._handles, {}
        for handle in handles.values():
            handle.detach()

    def cares(self, plan: StepPlan, name: str) -> bool:
        """Whether anything that a block takes or returns is wanted."""
        return any(self._cares(plan, name, kind) for kind in _KINDS)

    def offer(self, plan: StepPlan, name: str, taken: Any, returned: Any) -> None:
        """Names and offers what a block takes and returns."""
        for kind, value in zip(_KINDS, (taken, returned), strict=True):
            if self._cares(plan, name, kind):
                # Where a graph is made of a block, it is called with symbols.
                for keys, array in tensors_in(value, NDArray):
                    self._offer_tensor(self._names.next(name, kind, keys), array)

    def _cares(self, plan: StepPlan, name: str, kind: str) -> bool:
        key = (name, kind)
        if key not in plan.memory:
            plan.memory[key] = cares(plan, name, kind, self._known_regexes)
        return bool(plan.memory[key])

    def _callback(self, name: str) -> Callback:
        def after(block: Any, taken: Any, returned: Any) -> None:
            plan = self._plan
            if plan is not None and self._forwards.are_under_way():
                with self._entered():
                    self.offer(plan, name, taken, returned)

        return Callback(after)

    def _tell(self, registration: Registration, hidden: list[str]) -> None:
        if self._told:
            return
        self._told = True
        names = ", ".join(hidden[:_SHOWN]) + (", ..." if len(hidden) > _SHOWN else "")
        logger.warning(
            "%s is hybridized, in whole or in part: what the blocks inside of it (%s) take and "
            "return is not seen and not saved; parameters, gradients, and what is outside are. "
            "Call hybridize(active=False) to see it all, or hybridize only smaller parts",
            registration.name, names,
        )  # fmt: skip
