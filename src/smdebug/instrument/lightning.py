"""Instrument Lightning: add a callback to trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.hook.patch import patch
from smdebug.pytorch.hook import Hook

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from smdebug.instrument.job import InstrumentedJob


def instrument(job: InstrumentedJob, package: ModuleType) -> None:
    """Add the callback to every `Trainer` without one when it starts."""

    def with_callback(run: Callable[..., Any]) -> Callable[..., Any]:
        def call(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            _add_callback(job, trainer)
            return run(trainer, *args, **kwargs)

        return call

    for name in ("fit", "validate", "test", "predict"):
        patch(package.Trainer, name, with_callback)


def _add_callback(job: InstrumentedJob, trainer: Any) -> None:
    # Imported when a trainer is used: the package has two names, and only the one in use matters.
    from smdebug.pytorch.lightning import LightningCallback

    if any(isinstance(each, LightningCallback) for each in trainer.callbacks):
        return
    hook = job.hook_for(Hook)
    if hook is not None:
        job.has_trainer = True
        # First: the step has to begin before other callbacks see its batch.
        trainer.callbacks.insert(0, LightningCallback(hook))
