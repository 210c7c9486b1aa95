"""Attaching to Lightning: its trainers get a callback when they begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.hook.patch import patch
from smdebug.pytorch.hook import Hook

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from smdebug.instrument.job import InstrumentedJob

_BEGINNINGS = ("fit", "validate", "test", "predict")


class LightningWatch:
    """Adds the callback to every `Trainer` that has none.

    Args:
        job: has the hook.
        package: Lightning, by whichever of its names.
    """

    def __init__(self, job: InstrumentedJob, package: ModuleType) -> None:
        self._job = job
        for name in _BEGINNINGS:
            patch(package.Trainer, name, self._with_callback)

    def _with_callback(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def watched(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            self._add_callback(trainer)
            return run(trainer, *args, **kwargs)

        return watched

    def _add_callback(self, trainer: Any) -> None:
        # Not before there is a trainer: this package goes by two names, and only one is in use.
        from smdebug.pytorch.lightning import LightningCallback

        if any(isinstance(each, LightningCallback) for each in trainer.callbacks):
            return
        hook = self._job.hook(Hook)
        if hook is not None:
            self._job.has_trainer = True
            # In front: a step begins before other callbacks look at its batch.
            trainer.callbacks.insert(0, LightningCallback(hook))


def instrument(job: InstrumentedJob, package: ModuleType) -> None:
    """Instruments the package."""
    LightningWatch(job, package)
