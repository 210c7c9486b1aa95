"""What the hooks for Keras and for sessions have in common."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from smdebug.config.options import DEFAULT_QUEUE_BYTES, HookOptions
from smdebug.exceptions import SMDebugTypeError
from smdebug.hook.hook import BaseHook
from smdebug.tensorflow.collection import Collection
from smdebug.tensorflow.naming import ALWAYS_SAVED
from smdebug.tensorflow.tensors import is_finite, is_symbolic, take, to_array

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from smdebug.config.reduction_config import ReductionConfig
    from smdebug.config.save_config import SaveConfig, SaveConfigMode
    from smdebug.hook.capture import Capture
    from smdebug.hook.plan import SaveRequest
    from smdebug.reductions import Array


logger = logging.getLogger("smdebug.hook")

# What the two hooks have in place of it.
TENSORFLOW_HOOK = (
    "Saves what happens in a training with TensorFlow; `KerasHook` and `SessionHook` are made."
)


class TensorflowHook(BaseHook):
    """Saves what happens in a training with TensorFlow; `KerasHook` and `SessionHook` are made.

    Args:
        out_dir: where the run goes: a directory or a URL. In a SageMaker job it has a default.
        export_tensorboard: write TensorBoard files too.
        tensorboard_dir: where to; `<out_dir>/tensorboard` when None.
        dry_run: write nothing; say in the log what would be saved.
        reduction_config: what to save of a tensor; the tensor itself when None.
        save_config: when to save: a SaveConfig, a SaveConfigMode, a dict, or None for every 500th
            step.
        include_regex: regexes of tensors to save besides those of the collections.
        include_collections: names of collections to save; `losses`, `metrics`, `sm_metrics` and
            `searchable_scalars` are always saved.
        save_all: save every tensor.
        include_workers: `"one"`: only the first worker of a distributed job saves; `"all"`: every
            worker saves what it has.
        worker: the name of this worker; `worker_<rank>` when None.
        format: `"v2"`, or `"v1"` for files that smdebug 1.0 reads; None leaves it to the
            environment.
        queue_bytes: how much may wait for the writer before training waits.
        flush_seconds: the longest time a finished step stays unpublished; None lets it grow with
            the age of the run.
        on_error: what a failure does: `"warn"` stops saving and lets training go on, `"raise"`
            raises when the next step begins.
        rules: rules to evaluate while training runs, such as `["VanishingGradient",
            "LossNotDecreasing:num_steps=50"]`. What they need is saved; without a `save_config`,
            losses at every step and the rest at every 10th.
        on_finding: `"warn"`: what a rule finds is logged and kept in the run; `"stop"`: training
            also stops.
        before_update: not possible here: True is refused.
        actions: what else to do when a rule finds something, such as `[{"name": "webhook",
            "endpoint": "https://..."}]`.
        resume: go on behind the last step that the run in `out_dir` holds, finished or not.
        overwrite: delete the finished or interrupted run in `out_dir` first.

    Raises:
        SMDebugRuntimeError: there is no out_dir; it holds a finished run; another live process
            writes to it as this worker.
        SMDebugValueError, SMDebugTypeError: an argument makes no sense.
    """

    collection_class = Collection
    always_saved = ALWAYS_SAVED

    def __init__(
        self,
        out_dir: str | os.PathLike[str] | None = None,
        export_tensorboard: bool = False,
        tensorboard_dir: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | SaveConfigMode | Mapping[Any, Any] | None = None,
        include_regex: Any = None,
        include_collections: Any = None,
        save_all: bool = False,
        include_workers: str = "one",
        worker: str | None = None,
        format: str | None = None,
        queue_bytes: int = DEFAULT_QUEUE_BYTES,
        flush_seconds: float | None = None,
        on_error: str = "warn",
        rules: Any = None,
        on_finding: str = "warn",
        before_update: bool = False,
        actions: Any = None,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        options = HookOptions(
            out_dir, export_tensorboard, tensorboard_dir, dry_run, reduction_config, save_config,
            include_regex, include_collections, save_all, include_workers, worker, format,
            queue_bytes, flush_seconds, on_error, rules, on_finding, before_update, actions,
            resume, overwrite,
        )  # fmt: skip
        self._said: set[str] = set()
        self._set_up()
        super().__init__(options)

    def _set_up(self) -> None:
        """Makes what a hook of this kind keeps; before anything is opened."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._said = set()
        self._set_up()

    def _say(self, message: str) -> None:
        """Logs a warning, once."""
        if message not in self._said:
            self._said.add(message)
            logger.warning(message)

    def _put_name(self, collection: str, name: str) -> None:
        """Puts a tensor into a collection that has no regex for it, as soon as it is known."""
        planned = self._plan.collections.get(collection)
        if planned is not None and not planned.has_tensor_name(name):
            # In both: the plan is made of copies, and may have to be made again.
            planned.add_tensor_name(name)
            self._plan.forget_ever(name)
            self.collection_manager.get(collection).add_tensor_name(name)
            self._planned = self.collection_manager.to_json()

    def _keep_out(self, collection: str, name: str) -> None:
        """Keeps a tensor out of a collection whose regexes are found in its name."""
        planned = self._plan.collections.get(collection)
        if planned is not None and planned.matches(name):
            for each in (planned, self.collection_manager.get(collection)):
                each.exclude(f"^{re.escape(name)}$")
            self._plan.forget_ever(name)
            self._planned = self.collection_manager.to_json()

    # ---- what BaseHook asks

    def _as_tensor(self, key: str, value: Any) -> Any:
        return self._as_array(key, value)

    def _as_array(self, key: str, value: Any) -> Array:
        if is_symbolic(value):
            raise SMDebugTypeError(
                f"{key} must be a number, an array or a tensor that has a value, got {value!r}, "
                "which stands for one inside of a graph or a tf.function; save it outside, or use "
                "hook.save_tape_logs"
            )
        return super()._as_array(key, to_array(value) if _has_array(value) else value)

    def _take(self, name: str, tensor: Any, want: SaveRequest) -> Capture | None:
        return take(name, tensor, want)

    def _is_finite(self, tensor: Any) -> bool:
        return is_finite(tensor)


def _has_array(value: Any) -> bool:
    # What is wrong with lists and numbers is said by the base class.
    return hasattr(value, "dtype")
