"""Attaching to Keras: its models get the hook for a callback."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from smdebug.hook.patch import patch
from smdebug.instrument.arguments import Arguments

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from smdebug.instrument.job import InstrumentedJob

logger = logging.getLogger("smdebug.instrument")

_CALLED = ("fit", "evaluate", "predict")


class KerasWatch:
    """Adds the hook to the callbacks of `fit`, `evaluate` and `predict`.

    Args:
        job: has the hook.
        package: Keras.
    """

    def __init__(self, job: InstrumentedJob, package: ModuleType) -> None:
        self._job, self._package = job, package
        for name in _CALLED:
            patch(package.Model, name, self._with_hook)

    def _with_hook(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            arguments = Arguments(method, args, kwargs)
            callbacks = self._callbacks(arguments.get("callbacks"))
            if callbacks is not None:
                arguments.set("callbacks", callbacks)
            return method(*arguments.args, **arguments.kwargs)

        return watched

    def _callbacks(self, given: Any) -> Any:
        """The callbacks with the hook among them; None to leave them as they are."""
        # Not before a model is used: the backend of Keras is chosen by then.
        from smdebug.tensorflow.keras import KerasHook

        is_list = isinstance(given, self._package.callbacks.CallbackList)
        known = given.callbacks if is_list else _as_list(given)
        # In an evaluation inside of `fit` the hook is there already.
        if any(isinstance(each, KerasHook) for each in known):
            return None
        hook = self._job.hook(KerasHook)
        if hook is None:
            return None
        if is_list:
            logger.warning("callbacks in a CallbackList of the script's own are left alone")
            return None
        return [*known, hook]


def _as_list(callbacks: Any) -> list[Any]:
    if isinstance(callbacks, list | tuple):
        return list(callbacks)
    return [] if callbacks is None else [callbacks]


def instrument(job: InstrumentedJob, package: ModuleType) -> None:
    """Instruments the package."""
    KerasWatch(job, package)
