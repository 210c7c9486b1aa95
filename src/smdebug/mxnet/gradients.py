"""The gradients of a step: those of its last backward.

They are taken when a backward has ended: training may soon clip them, or set them to zero.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from smdebug.hook.naming import GRADIENT_PREFIX
from smdebug.hook.nan_trigger import watch
from smdebug.mxnet.tensors import NDArrayCapture, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smdebug.hook.capture import StepCapture
    from smdebug.hook.plan import StepPlan
    from smdebug.mxnet.hook import Hook


class Gradients:
    """Takes the gradients of the present step of a hook; watches backwards.

    Args:
        hook: the hook.
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._taken: dict[str, NDArrayCapture] = {}
        # Where the forwards of the step were.
        self._threads: set[int] = set()

    def begin_step(self) -> None:
        """Forgets the gradients of the step before."""
        self._taken, self._threads = {}, set()

    def see_forward(self) -> None:
        """Takes note of the thread of a forward of the step."""
        self._threads.add(threading.get_ident())

    def take_all(self) -> list[NDArrayCapture]:
        """Returns the gradients that were taken since the last call."""
        taken, self._taken = self._taken, {}
        return list(taken.values())

    def trains_here(self) -> bool:
        """Whether a forward of the present step was in this thread."""
        return threading.get_ident() in self._threads

    @contextmanager
    def around_backward(self, own: bool) -> Iterator[None]:
        """Is entered before a backward and left after it.

        Args:
            own: whether the backward is in the thread that trains.
        """
        hook, capture = self._hook, self._hook._capture
        if capture is None or capture.plan is None or hook._forked:
            yield
            return
        wanted: list[tuple[str, Any, Any]] = []
        with hook._entered():
            wanted = self._wanted(capture.plan)
        # MXNet marks what a backward has reached. What another net has is of an earlier step.
        marked = [data for _, data, _ in wanted if own and data is not None and data._fresh_grad]
        for data in marked:
            data._fresh_grad = False
        try:
            yield
            with hook._entered():
                for name, data, gradient in wanted:
                    if data is None or data._fresh_grad:
                        self._take(capture, name, gradient)
        finally:
            for data in marked:
                data._fresh_grad = True

    def _wanted(self, plan: StepPlan) -> list[tuple[str, Any, Any]]:
        """What the first device has of the gradients of interest, with what they are of."""
        found, frozen = [], []
        for name, parameter in self._hook._parameters(plan, GRADIENT_PREFIX):
            if parameter.grad_req == "null":
                frozen.append(name)
                continue
            arrays = self._hook._read(name, parameter.list_grad)
            if arrays:
                data = None
                # Of one of which only rows can be asked for nobody knows.
                with suppress(RuntimeError):
                    data = parameter.list_data()[0]
                found.append((GRADIENT_PREFIX + name, data, arrays[0]))
        self._hook._note_frozen(tuple(frozen))
        return found

    def _take(self, capture: StepCapture, name: str, gradient: Any) -> None:
        assert capture.plan is not None
        want = capture.plan.want(name)
        if want is not None:
            self._taken[name] = NDArrayCapture(name, snapshot(gradient), want)
        if capture.plan.armed:
            watch(self._hook, capture, name, gradient)
