"""The gradients of a step: those of its last backward pass.

They are captured when a backward pass has ended: the script may clip them, or set them to zero.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from smdebug.hook.naming import GRADIENT_PREFIX
from smdebug.hook.nan_trigger import observe
from smdebug.mxnet.naming import FROZEN_PARAMETERS
from smdebug.mxnet.tensors import NDArrayCapture, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.hook.capture import StepCapture
    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import StepPlan
    from smdebug.mxnet.parameters import Parameters


class Gradients:
    """Captures the gradients of the current step; observes backward passes.

    Args:
        pipeline: the pipeline.
        parameters: the parameters of the registered blocks.
    """

    def __init__(self, pipeline: Pipeline, parameters: Parameters) -> None:
        self._pipeline = pipeline
        self._parameters = parameters
        self._captures: dict[str, NDArrayCapture] = {}
        # The threads in which the step had forward passes.
        self._threads: set[int] = set()
        self._frozen: tuple[str, ...] = ()

    def begin_step(self) -> None:
        """Drop the gradients of the previous step."""
        self._captures, self._threads = {}, set()

    def note_thread(self) -> None:
        """Record that the step has a forward pass in this thread."""
        self._threads.add(threading.get_ident())

    def pop_captures(self) -> list[NDArrayCapture]:
        """Return what was captured since the last call."""
        captures, self._captures = self._captures, {}
        return list(captures.values())

    def trains_here(self) -> bool:
        """Return whether the current step had a forward pass in this thread."""
        return threading.get_ident() in self._threads

    @contextmanager
    def around_backward(self, own: bool) -> Iterator[None]:
        """Capture the gradients that a backward pass computes; see `BackwardObserver`."""
        current, guarded = self._pipeline.current, self._pipeline.guarded
        if current is None or current.plan is None:
            yield
            return
        found: list[tuple[str, Any, Any]] = []
        with guarded:
            found = self._find(current.plan)
        # MXNet marks the parameters that a backward pass reaches. Marks that are there before
        # this one are those of an earlier step, or of another net; the trainer needs them, too.
        marked = [data for _, data, _ in found if own and data is not None and data._fresh_grad]
        for data in marked:
            data._fresh_grad = False
        try:
            yield
            with guarded:
                for name, data, gradient in found:
                    if data is None or data._fresh_grad:
                        self._capture(current, name, gradient)
        finally:
            for data in marked:
                data._fresh_grad = True

    def _find(self, plan: StepPlan) -> list[tuple[str, Any, Any]]:
        """Return the names of gradients that may be saved, their parameters' data, and them."""
        found, frozen = [], []
        for name, parameter in self._parameters.relevant(plan, GRADIENT_PREFIX):
            if parameter.grad_req == "null":
                frozen.append(name)
                continue
            gradient = self._parameters.read(name, parameter.list_grad)
            if gradient is not None:
                data = None
                # A row-sparse parameter does not give its data, so its mark is unknown.
                with suppress(RuntimeError):
                    data = parameter.list_data()[0]
                found.append((GRADIENT_PREFIX + name, data, gradient))
        if tuple(frozen) != self._frozen:
            self._frozen = tuple(frozen)
            if frozen:
                self._pipeline.collections.manager.get(FROZEN_PARAMETERS).add(frozen)
        return found

    def _capture(self, current: StepCapture, name: str, gradient: Any) -> None:
        assert current.plan is not None
        request = current.plan.request(name)
        if request is not None:
            # Not added to the step yet: a second backward pass replaces it.
            self._captures[name] = NDArrayCapture(name, snapshot(gradient), request)
        if current.plan.armed:
            observe(self._pipeline, current, name, gradient)
