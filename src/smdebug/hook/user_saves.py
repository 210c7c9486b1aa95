"""What the user saves: `save_scalar` and `save_tensor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.config.collection import CollectionKeys
from smdebug.hook.capture import ArrayCapture
from smdebug.hook.nan_trigger import observe_user_save
from smdebug.hook.plan import SaveRequest

if TYPE_CHECKING:
    from smdebug.hook.pipeline import Pipeline

_SCALAR = SaveRequest(raw=True, reductions=(), collections=(CollectionKeys.SCALARS,))
_METRIC = SaveRequest(
    raw=True, reductions=(), collections=(CollectionKeys.SCALARS, CollectionKeys.SM_METRICS)
)


class UserSaves:
    """Saves values at the current step of the present mode, at any time.

    Args:
        pipeline: the pipeline.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def save_scalar(self, name: str, value: Any, metric: bool, time: float) -> None:
        """Save a number, whatever the save schedule.

        Args:
            name: its name, as it is saved.
            value: a tensor of the framework with one element, or an array.
            metric: the number also belongs to the collection `sm_metrics`.
            time: seconds since 1970.
        """
        pipeline = self._pipeline
        pipeline.adapter.begin_user_step()
        if pipeline.saving():
            with pipeline.guarded:
                request = _METRIC if metric else _SCALAR
                pipeline.collections.remember(name, request.collections)
                self._save(name, value, request, time)
                observe_user_save(pipeline, name, value)
        else:
            pipeline.lose_user_step()
        pipeline.errors.raise_pending()

    def save_tensor(self, name: str, tensor: Any, collections: list[str]) -> None:
        """Save a tensor, if one of the collections is saved at the step, by schedule or `when_nan`.

        Args:
            name: its name.
            tensor: a tensor of the framework, or an array.
            collections: the names of the collections; those that do not exist are created.
        """
        pipeline = self._pipeline
        pipeline.adapter.begin_user_step()
        if pipeline.saving():
            with pipeline.guarded:
                names = [pipeline.collections.name_of(each) for each in collections]
                pipeline.collections.remember(name, names)
                step, plan = pipeline.steps.current(), pipeline.plan
                triggered = observe_user_save(pipeline, name, tensor)
                due = plan.collections_at(names, step.mode, step.mode_step)
                due += [each for each in names if each in triggered and each not in due]
                request = plan.request_for([plan.collections[each] for each in due])
                if request is not None:
                    self._save(name, tensor, request)
        else:
            pipeline.lose_user_step()
        pipeline.errors.raise_pending()

    def _save(
        self, name: str, tensor: Any, request: SaveRequest, time: float | None = None
    ) -> None:
        adapter, target = self._pipeline.adapter, self._pipeline.user_step()
        if adapter.is_tensor(tensor):
            capture = adapter.capture(name, tensor, request, target.last, time)
        else:
            capture = ArrayCapture(name, tensor, request, time)
        self._pipeline.put([] if capture is None else [capture], target)
