"""The public interface of every framework's hook.

It has over 400 lines because more than half of them document it.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from smdebug.config import environment, validation
from smdebug.config.collection import Collection
from smdebug.config.collection_manager import CollectionManager
from smdebug.config.json_config import read_json_config, read_tensorboard_dir
from smdebug.config.options import DEFAULT_QUEUE_BYTES, HookOptions
from smdebug.exceptions import SMDebugTypeError
from smdebug.hook.adapter import Adapter
from smdebug.hook.module_api import set_hook
from smdebug.hook.pipeline import Pipeline
from smdebug.hook.run.run_location import resolve_out_dir
from smdebug.hook.steps import check_mode, step_number
from smdebug.hook.worker import CHIEF_WORKER
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.memory import MemoryStore

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from types import TracebackType

    from smdebug.config.json_config import JsonConfigSource
    from smdebug.config.reduction_config import ReductionConfig
    from smdebug.config.save_config import SaveConfig, SaveConfigMode
    from smdebug.hook.stats import HookStats
    from smdebug.mode_keys import ModeKeys
    from smdebug.storage.findings import Finding

_Hook = TypeVar("_Hook", bound="BaseHook")

logger = logging.getLogger("smdebug.hook")


class BaseHook:
    """Saves tensors of a training job; every framework has its own hook.

    Args:
        out_dir: where the run is saved: a directory or a URL. In a SageMaker job it has a default.
        export_tensorboard: write TensorBoard files too.
        tensorboard_dir: the directory of TensorBoard files; `<out_dir>/tensorboard` when None.
        dry_run: write nothing; log what would be saved.
        reduction_config: what to save of a tensor; the tensor itself when None.
        save_config: when to save: a SaveConfig, a SaveConfigMode, a dict, or None for the
            framework's default, every 500th step (XGBoost: every 10th).
        include_regex: regexes of tensors to save besides those of the collections.
        include_collections: names of collections to save, besides those that are always saved.
        save_all: save every tensor.
        include_workers: `"one"`: only the first worker of a distributed job saves; `"all"`: every
            worker saves what it has.
        worker: the name of this worker; `worker_<rank>` when None.
        format: `"v2"`, or `"v1"` for files that smdebug 1.0 reads; None leaves it to the
            environment.
        queue_bytes: how much may wait for the writer before training waits.
        flush_seconds: the longest time a finished step stays unpublished; None lets it grow with
            the age of the run.
        on_error: what a failure does: `"warn"` stops saving and lets training continue, `"raise"`
            raises when the next step begins.
        rules: rules to evaluate while training runs, such as `["VanishingGradient",
            "LossNotDecreasing:num_steps=50"]`. What they need is saved; without a `save_config`,
            losses at every step and the rest at every 10th.
        on_finding: `"warn"`: findings are logged and kept in the run; `"stop"`: training also stops
            when its next step begins, with `RuleEvaluationConditionMet`.
        before_update: check every gradient before an optimizer uses it and stop when one is not
            finite, so that the weights stay the last good ones. With the rule `NonFinite` or
            `ExplodingTensor`; PyTorch only.
        actions: what else to do when a rule finds something, such as `[{"name": "webhook",
            "endpoint": "https://..."}]`.
        resume: continue after the last step of the run in `out_dir`, finished or not.
        overwrite: delete the finished or interrupted run in `out_dir` first.

    Raises:
        SMDebugRuntimeError: there is no out_dir; it holds a finished run; another live process
            writes to it as this worker.
        SMDebugValueError, SMDebugTypeError: an argument is invalid.

    Attributes:
        out_dir: where the run is saved.
    """

    # A framework's hook sets both to its own adapter.
    adapter_class: ClassVar[type[Adapter]] = Adapter
    _adapter: Any
    chief_worker = CHIEF_WORKER
    # Collections that module-level functions made for hooks to come.
    prepared: ClassVar[CollectionManager] = CollectionManager()

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
        given = dict(locals())
        arguments = {each.name: given[each.name] for each in dataclasses.fields(HookOptions)}
        self._start(HookOptions(**arguments))

    def _start(self, options: HookOptions) -> None:
        """Make the pipeline, and this hook the one of the process."""
        options = options.saving_every(self.adapter_class.default_save_interval)
        if environment.in_sagemaker():
            # The platform's own setting comes first: it copies that directory and no other.
            options = options.with_tensorboard(read_tensorboard_dir())
        self.out_dir = resolve_out_dir(options)
        self._set_pipeline(
            Pipeline(
                self.adapter_class, options, open_store(self.out_dir), self.out_dir,
                type(self).prepared,
            )
        )  # fmt: skip
        self._pipeline.start()
        set_hook(self)

    def _set_pipeline(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._adapter = pipeline.adapter

    @classmethod
    def create_from_json_file(
        cls: type[_Hook], json_file_path: JsonConfigSource | None = None
    ) -> _Hook:
        """Make the hook that a JSON config describes.

        Args:
            json_file_path: the file, or a dict with its contents, such as the request that the
                SageMaker SDK makes; when None, the file that `SMDEBUG_CONFIG_FILE_PATH` names, or
                the one where SageMaker puts it.

        Raises:
            FileNotFoundError: there is no such file.
            SMDebugValueError: something in it is invalid.
        """
        interval = cls.adapter_class.default_save_interval
        config = read_json_config(json_file_path, default_save_interval=interval)
        # The constructor of an adapter's hook takes at least the fields of HookOptions.
        fields = dataclasses.fields(config.options)
        arguments: Any = {field.name: getattr(config.options, field.name) for field in fields}
        hook = cls(**arguments)
        for collection in config.collections:
            hook.collection_manager.overlay(collection)
        return hook

    # ---- configuration

    @property
    def tensorboard_dir(self) -> str | None:
        """Where TensorBoard files go; None when there are none."""
        return self._pipeline.options.tensorboard_path

    @property
    def dry_run(self) -> bool:
        """Whether nothing is written."""
        return self._pipeline.options.dry_run

    @property
    def save_all_workers(self) -> bool:
        """Whether every worker writes, not only the first."""
        return self._pipeline.options.include_workers == "all"

    @property
    def save_config(self) -> SaveConfig:
        """When to save, for collections without a `save_config`."""
        return self._pipeline.options.save_config

    @property
    def reduction_config(self) -> ReductionConfig:
        """What to save, for collections without a `reduction_config`."""
        return self._pipeline.options.reduction_config

    @property
    def include_regex(self) -> tuple[str, ...]:
        """The regexes given for the collection `default`."""
        return self._pipeline.options.include_regex

    @property
    def include_collections(self) -> set[str]:
        """The names of the collections that are saved."""
        return set(self._pipeline.collections.included)

    @property
    def worker(self) -> str:
        """The name of this worker."""
        return self._pipeline.adapter.worker().name

    # ---- collections

    @property
    def collection_manager(self) -> CollectionManager:
        """The collections of this hook."""
        return self._pipeline.collections.manager

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """Return a collection of this hook; changes take effect at the next step.

        Args:
            name: its name.
            create: create it if it does not exist; otherwise that is an `SMDebugValueError`.

        Example:
            >>> hook.get_collection("relu").include("relu_output")  # doctest: +SKIP
        """
        return self.collection_manager.get(name, create)

    def get_collections(self) -> dict[str, Collection]:
        """Return all collections of this hook by name."""
        return self.collection_manager.get_collections()

    def add_collection(self, collection: Collection) -> None:
        """Add a collection; one of the same name is replaced."""
        if not isinstance(collection, Collection):
            raise SMDebugTypeError(
                f"collection must be a Collection, got {validation.short_repr(collection)} of type "
                f"{type(collection).__name__}"
            )
        self.collection_manager.add(collection)

    def add_to_collection(self, collection_name: str, variable: Any) -> None:
        """Add tensor names, or what the framework's `Collection.add` takes, to a collection."""
        self.get_collection(collection_name).add(variable)

    def has_default_configuration(self) -> bool:
        """Return whether the hook saves what a hook saves without any configuration."""
        included = self._pipeline.collections.included
        default = set(self.adapter_class.always_saved)
        return included == default and not self._pipeline.options.save_all

    has_default_hook_configuration = has_default_configuration

    def export_collections(self) -> None:
        """Write the collections file now; it is also kept up to date without this."""
        self._pipeline.write_collections()

    def should_save_tensor_or_collection(self, tensor_name: str, collection_name: str) -> bool:
        """Return whether a tensor, or a collection, is saved at the current step."""
        current = self._pipeline.current
        if current is None or current.plan is None:
            return False
        saving = {collection.name for collection in current.plan.saving}
        return collection_name in saving or current.plan.request(tensor_name) is not None

    # ---- steps

    @property
    def step(self) -> int:
        """The number of the last step over all modes; -1 before the first.

        Setting it goes back, or forward, to a step: the next one follows it, in every mode as far
        as its count at that step is known. Steps that are saved again replace those saved before.

        Example:
            >>> hook.step = checkpoint["step"]  # doctest: +SKIP
        """
        return self._pipeline.steps.step

    @step.setter
    def step(self, value: int) -> None:
        self._pipeline.go_to_step(step_number(value))

    @property
    def mode(self) -> ModeKeys:
        """The mode of the steps to come."""
        return self._pipeline.steps.mode

    @property
    def mode_steps(self) -> dict[ModeKeys, int]:
        """The number of the last step of each mode that was used."""
        return self._pipeline.steps.mode_steps

    @property
    def last_saved_step(self) -> int | None:
        """The last step at which something was saved, of those up to `step`.

        None without one, and where `step` was set back and it is not known.
        """
        return self._pipeline.saved.last

    def set_mode(self, mode: ModeKeys) -> None:
        """Set the mode of the steps to come: `modes.TRAIN`, `EVAL`, `PREDICT` or `GLOBAL`."""
        self._pipeline.set_mode(check_mode(mode))

    # ---- saving

    def save_scalar(
        self,
        name: str,
        value: Any,
        sm_metric: bool = False,
        timestamp: float | None = None,
    ) -> None:
        """Save a number as `scalar/<name>` at the current step and mode, whatever the schedule.

        Args:
            name: its name.
            value: a number, or an array or tensor with one element.
            sm_metric: the number also belongs to the collection `sm_metrics`.
            timestamp: seconds since 1970; now when None.

        Raises:
            SMDebugTypeError: the value is not one number.

        Example:
            >>> hook.save_scalar("learning_rate", 0.1)  # doctest: +SKIP
        """
        validation.text("name", name)
        moment = time.time() if timestamp is None else validation.seconds("timestamp", timestamp)
        if self._adapter.is_tensor(value) and not getattr(value, "is_meta", False):
            # Not read here: that would wait for its device.
            single = math.prod(value.shape) == 1
        else:
            array = self._adapter.to_array("value", value)
            single = array.size == 1 and array.dtype.kind not in "USO"
            # A number by itself has always been stored as an array of one.
            value = array if hasattr(value, "shape") else array.reshape(-1)
        if not single:
            raise SMDebugTypeError(
                f"scalar {name!r}: value must be one number, got {validation.short_repr(value)}"
            )
        self._pipeline.user_saves.save_scalar(f"scalar/{name}", value, sm_metric, moment)

    def save_tensor(
        self, tensor_name: str, tensor_value: Any, collections_to_write: Any = "default"
    ) -> None:
        """Save a tensor at the current step, if a collection it belongs to is saved at it.

        Args:
            tensor_name: its name.
            tensor_value: a tensor of the framework, a NumPy array, or lists of numbers.
            collections_to_write: the collection, or a list of them, to save it in. They need not be
                among `include_collections`; those that do not exist are created.

        Raises:
            SMDebugTypeError: the value is not a tensor.

        Example:
            >>> hook.save_tensor("batch", images, ["inputs"])  # doctest: +SKIP
        """
        validation.text("tensor_name", tensor_name)
        names = validation.names("collections_to_write", collections_to_write) or ["default"]
        tensor = tensor_value
        if not self._adapter.is_tensor(tensor):
            tensor = self._adapter.to_array(tensor_name, tensor)
        self._pipeline.user_saves.save_tensor(tensor_name, tensor, names)

    def flush(self) -> None:
        """Publish everything saved so far, the current step included, and wait for it."""
        self._pipeline.flush()

    def stats(self) -> HookStats:
        """Return what was saved so far, and the overhead."""
        return self._pipeline.stats()

    # ---- rules

    def findings(self) -> list[Finding]:
        """Return what the rules of this hook have found so far, in the order they found it."""
        return self._pipeline.rules.findings()

    def rule_report(self) -> Any:
        """Return the result of each rule so far, a `RuleReport`; final once the hook is closed.

        None when this process evaluates no rules: the hook has none, or it is not the first worker.
        """
        return self._pipeline.rules.report()

    # ---- the end

    @property
    def closed(self) -> bool:
        """Whether the hook was closed."""
        return self._pipeline.lifecycle.closed

    def close(self) -> None:
        """Publish everything, mark the run as finished, remove the hook from the model.

        Also runs when the interpreter exits. A second call does nothing, waits for the first, or
        completes one that Ctrl-C interrupted; steps after it are not saved. It may be called from
        any thread.
        """
        self._pipeline.lifecycle.close()

    def __enter__(self: _Hook) -> _Hook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        try:
            self.close()
        except Exception:
            if kind is None:
                raise
            # The script's own exception is the one to show.
            logger.exception("the run in %s is not complete", self.out_dir)

    def __getstate__(self) -> dict[str, Any]:
        # What holds a hook can be pickled; the hook itself stays in its process.
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become a hook that answers everything and saves nothing, as in a forked child."""
        self.out_dir = ""
        options = HookOptions(dry_run=True)
        options = options.saving_every(self.adapter_class.default_save_interval)
        prepared = type(self).prepared
        self._set_pipeline(Pipeline(self.adapter_class, options, MemoryStore(), "", prepared))
        self._pipeline.lifecycle.abandon()

    def __deepcopy__(self: _Hook, memo: dict[int, Any]) -> _Hook:
        return self
