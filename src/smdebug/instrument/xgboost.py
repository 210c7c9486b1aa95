"""Attaching to XGBoost: its trainings get the hook for a callback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xgboost

from smdebug.hook.patch import patch
from smdebug.instrument.arguments import Arguments
from smdebug.xgboost.hook import Hook

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from smdebug.instrument.job import InstrumentedJob


class XgboostWatch:
    """Adds the hook to the callbacks of `train`, which estimators of scikit-learn call too.

    Args:
        job: has the hook.
    """

    def __init__(self, job: InstrumentedJob) -> None:
        self._job = job
        # One function with three names; pickle requires that it stays one.
        train = self._with_hook(xgboost.train)
        for owner in (xgboost.training, xgboost, xgboost.sklearn):
            patch(owner, "train", lambda _: train)

    def _with_hook(self, train: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            arguments = Arguments(train, args, kwargs)
            self._add_hook(arguments)
            return train(*arguments.args, **arguments.kwargs)

        return watched

    def _add_hook(self, arguments: Arguments) -> None:
        callbacks = list(arguments.get("callbacks") or ())
        if any(isinstance(each, Hook) for each in callbacks):
            return
        hook = self._job.hook(Hook)
        if hook is None:
            return
        # Explanations are of what this training is given.
        data = arguments.get("dtrain")
        others = [each for each, _ in arguments.get("evals") or () if each is not data]
        hook.hyperparameters = arguments.get("params")
        hook.train_data = data
        hook.validation_data = others[0] if others else data
        arguments.set("callbacks", [*callbacks, hook])


def instrument(job: InstrumentedJob, package: ModuleType) -> None:
    """Instruments the package."""
    XgboostWatch(job)
