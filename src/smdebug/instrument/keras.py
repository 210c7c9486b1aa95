"""Instrument Keras: add the hook to the callbacks of models."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from smdebug.hook.patch import patch
from smdebug.instrument.calls import Arguments

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from smdebug.instrument.job import InstrumentedJob

logger = logging.getLogger("smdebug.instrument")


def instrument(job: InstrumentedJob, package: ModuleType) -> None:
    """Add the hook to the callbacks of `fit`, `evaluate` and `predict`."""

    def with_hook(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            arguments = Arguments(method, args, kwargs)
            callbacks = arguments.get("callbacks")
            is_list = isinstance(callbacks, package.callbacks.CallbackList)
            hook = _new_hook(job, callbacks.callbacks if is_list else _as_list(callbacks))
            if hook is not None and is_list:
                logger.warning("Not instrumenting Model.%s: got a CallbackList", method.__name__)
            elif hook is not None:
                arguments.set("callbacks", [*_as_list(callbacks), hook])
            return method(*arguments.args, **arguments.kwargs)

        return call

    for name in ("fit", "evaluate", "predict"):
        patch(package.Model, name, with_hook)


def _new_hook(job: InstrumentedJob, callbacks: list[Any]) -> Any:
    """Return the hook, unless it is among the callbacks or the job gets none."""
    # Imported when a model is used: the backend of Keras is chosen by then.
    from smdebug.tensorflow.keras import KerasHook

    # `fit` passes its callbacks on to `evaluate`.
    if any(isinstance(each, KerasHook) for each in callbacks):
        return None
    return job.hook_for(KerasHook)


def _as_list(callbacks: Any) -> list[Any]:
    if isinstance(callbacks, list | tuple):
        return list(callbacks)
    return [] if callbacks is None else [callbacks]
