"""Instrument XGBoost: add the hook to the callbacks of `train`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.hook.patch import patch
from smdebug.instrument.calls import Arguments
from smdebug.xgboost.hook import Hook

if TYPE_CHECKING:
    from types import ModuleType

    from smdebug.instrument.job import InstrumentedJob


def instrument(job: InstrumentedJob, package: ModuleType) -> None:
    """Add the hook to the callbacks of `train`, which the scikit-learn estimators call too."""
    train = package.train

    def train_with_hook(*args: Any, **kwargs: Any) -> Any:
        arguments = Arguments(train, args, kwargs)
        _add_hook(job, arguments)
        return train(*arguments.args, **arguments.kwargs)

    # One function with three names; pickle requires that it stays one.
    for owner in (package.training, package, package.sklearn):
        patch(owner, "train", lambda _: train_with_hook)


def _add_hook(job: InstrumentedJob, arguments: Arguments) -> None:
    callbacks = list(arguments.get("callbacks") or ())
    if any(isinstance(each, Hook) for each in callbacks):
        return
    hook = job.hook_for(Hook)
    if hook is None:
        return
    # SHAP values are computed from the data of this call.
    data = arguments.get("dtrain")
    others = [each for each, _ in arguments.get("evals") or () if each is not data]
    hook.hyperparameters = arguments.get("params")
    hook.train_data = data
    hook.validation_data = others[0] if others else data
    arguments.set("callbacks", [*callbacks, hook])
