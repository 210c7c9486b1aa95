"""The protocol that a framework implements to save its tensors.

An adapter turns the callbacks of a framework into calls of its pipeline: `pipeline.begin_step()`
when a step begins, `pipeline.offer(name, tensor)` for every tensor, inside `pipeline.guarded`. The
pipeline decides what is saved and asks the adapter for copies. The methods here are those for
NumPy arrays; a framework overrides what is different for its tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import Collection
from smdebug.config.save_config import DEFAULT_SAVE_CONFIG_INTERVAL
from smdebug.exceptions import RuleEvaluationConditionMet, SMDebugTypeError, SMDebugValueError
from smdebug.hook.capture import ArrayCapture
from smdebug.hook.nan_trigger import is_finite_array
from smdebug.hook.worker import CHIEF_WORKER, Worker

if TYPE_CHECKING:
    from smdebug.config.collection_manager import CollectionManager
    from smdebug.hook.capture import Capture, StepCapture
    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import SaveRequest
    from smdebug.hook.run.output import Output
    from smdebug.reductions import Array
    from smdebug.storage.stop_requests import StopRequest


class Adapter:
    """The interface of a framework for the pipeline.

    Args:
        pipeline: the pipeline to call. It is not complete while the adapter is made: keep it, and
            use it from the first callback on.

    Attributes:
        framework: the name of the framework, for messages.
        collection_class: the class of the hook's collections.
        default_collections: the collections that exist from the start, with their regexes.
        always_saved: the names of collections that are saved even if they are not included.
        default_save_interval: how often to save without a `save_config`.
        can_stop_before_update: whether `before_update=True` is supported: the framework shows
            gradients before an optimizer uses them.

    Example:
        An adapter for a loop over NumPy arrays, and its hook:

        >>> class NumpyAdapter(Adapter):
        ...     default_collections = {"losses": ("loss",), "weights": ("weight",)}
        ...     always_saved = frozenset({"losses"})
        ...
        ...     def run_step(self, tensors):
        ...         self.pipeline.stop_if_requested()
        ...         if self.pipeline.begin_step() is not None:
        ...             with self.pipeline.guarded:
        ...                 for name, array in tensors.items():
        ...                     self.pipeline.offer(name, array)
    """

    framework: ClassVar[str] = "this framework"
    collection_class: ClassVar[type[Collection]] = Collection
    default_collections: ClassVar[dict[str, tuple[str, ...]]] = {}
    always_saved: ClassVar[frozenset[str]] = frozenset()
    default_save_interval: ClassVar[int] = DEFAULT_SAVE_CONFIG_INTERVAL
    can_stop_before_update: ClassVar[bool] = False

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    @classmethod
    def refuse_before_update(cls) -> None:
        """Raise an error: the framework does not support `before_update=True`."""
        raise SMDebugValueError(
            f"before_update must be False for {cls.framework}, got True: gradients are not visible "
            'before they are used; on_finding="stop" stops after the step'
        )

    # ---- tensors

    def is_tensor(self, value: Any) -> bool:
        """Return whether `capture` takes this value as it is."""
        return isinstance(value, np.ndarray) and value.dtype.kind not in "OUS"

    def to_array(self, key: str, value: Any) -> Array:
        """Return a number or a tensor that the user passed as an array of its own.

        Args:
            key: the name of the value in an error.
            value: a tensor of the framework, an array, numbers in lists, or a number.

        Raises:
            SMDebugTypeError: it is none of these.
        """
        try:
            array = np.array(value)
        except (TypeError, ValueError) as error:
            raise SMDebugTypeError(
                f"{key} must be a number, an array or a tensor, "
                f"got {validation.short_repr(value)}: {error}"
            ) from error
        if array.dtype.kind == "O":
            raise SMDebugTypeError(
                f"{key} must be a number, an array or a tensor, "
                f"got {validation.short_repr(value)} of type {type(value).__name__}"
            )
        return array

    def capture(
        self,
        name: str,
        tensor: Any,
        request: SaveRequest,
        last: Capture | None = None,
        time: float | None = None,
    ) -> Capture | None:
        """Copy what is saved of a tensor, to be finished on the writer thread.

        Args:
            name: the tensor's name.
            tensor: a tensor of the framework, or an array.
            request: what to save of it.
            last: the capture of the same step that was made last; the tensor may join it.
            time: seconds since 1970, when it differs from the step's.

        Returns:
            The capture; None if the tensor joined `last`, or there is nothing to save.
        """
        return ArrayCapture(name, self.to_array(name, tensor), request, time)

    def is_finite(self, tensor: Any) -> bool:
        """Return whether all elements of a tensor are finite."""
        return is_finite_array(self.to_array("tensor", tensor))

    def hold(self, tensor: Any) -> Any:
        """Return what to keep of a tensor that may have to be saved later in the step."""
        return tensor

    def version(self, tensor: Any) -> object:
        """Return a value that changes when the memory of a held tensor is written to."""
        return None

    # ---- the job

    def worker(self) -> Worker:
        """Return which worker of the job this process is."""
        return Worker(self.pipeline.options.worker or CHIEF_WORKER)

    def resolve(self, collections: CollectionManager) -> None:
        """Turn modules and variables in collections into names and regexes, where known."""

    def open_output(self, worker: str) -> Output | None:
        """Open what this worker writes to; a framework with replicas opens several."""
        return self.pipeline.run.open_output(worker)

    # ---- steps

    def begin_user_step(self) -> None:
        """Begin a step for what the user saves, where the framework would not begin one."""

    def complete(self, capture: StepCapture) -> None:
        """Capture what is only available now; called whenever a step is handed over.

        It may be called several times for a step (`flush`), and for steps before the current one.
        Transfers from a device must have been started when it returns.
        """

    def stop_training(self, request: StopRequest) -> None:
        """End training; the run has been closed.

        Raises:
            RuleEvaluationConditionMet: unless the framework has another way to end training.
        """
        raise RuleEvaluationConditionMet(
            request.rule, request.step, tensor=request.tensor, message=request.reason
        )

    # ---- the end

    def detach(self) -> None:
        """Remove everything from the model: the hook is closed."""

    def after_fork(self) -> None:
        """Remove everything from the model in a forked child, which saves nothing."""
