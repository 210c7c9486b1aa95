"""The hook for PyTorch. It has over 400 lines because a third of them document its arguments."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch.nn.modules.loss import _Loss

from smdebug.config import environment, validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.options import DEFAULT_QUEUE_BYTES, HookOptions
from smdebug.exceptions import SMDebugError, SMDebugRuntimeError, SMDebugTypeError
from smdebug.hook.base import BaseHook
from smdebug.hook.handles import Handle
from smdebug.hook.rule_layers import include_layers, include_loss
from smdebug.hook.worker import CHIEF_WORKER, Worker
from smdebug.mode_keys import ModeKeys
from smdebug.pytorch.activations import Activations
from smdebug.pytorch.collection import Collection
from smdebug.pytorch.context import in_backward
from smdebug.pytorch.fsdp import FsdpGradients
from smdebug.pytorch.minmax import MinMax
from smdebug.pytorch.naming import original_module
from smdebug.pytorch.optimizer_guard import OptimizerGuard
from smdebug.pytorch.parameters import Gradients, Weights
from smdebug.pytorch.registration import (
    Callback,
    HookSet,
    Registration,
    around_forward,
    registered_parts,
)
from smdebug.pytorch.tensors import (
    DeviceTensorCapture,
    is_finite,
    local_tensor,
    to_numpy,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from smdebug.config.reduction_config import ReductionConfig
    from smdebug.config.save_config import SaveConfig, SaveConfigMode
    from smdebug.hook.capture import Capture, StepCapture
    from smdebug.hook.plan import SaveRequest
    from smdebug.reductions import Array

logger = logging.getLogger("smdebug.hook")

# The collection that names parameters with `requires_grad=False`.
FROZEN_PARAMETERS = "frozen_parameters"


class Hook(BaseHook):
    """Saves tensors out of a PyTorch training job.

    Every forward of a registered module is a step. At the steps its schedule names the hook saves
    what its collections hold: `weights` and `biases` (before they are updated), `gradients` (of
    that backward), `losses`, inputs and outputs of modules.

    Args:
        out_dir: where the run goes: a directory or a URL. In a SageMaker job it has a default.
        export_tensorboard: write TensorBoard files too.
        tensorboard_dir: where to; `<out_dir>/tensorboard` when None.
        dry_run: write nothing; say in the log what would be saved.
        reduction_config: what to save of a tensor; the tensor itself when None.
        save_config: when to save: a SaveConfig, a SaveConfigMode, a dict, or None for every 500th
            step.
        include_regex: regexes of tensors to save besides those of the collections.
        include_collections: names of collections to save; `losses` is always saved.
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
            also stops when its next step begins, with `RuleEvaluationConditionMet`.
        before_update: look at every gradient before an optimizer uses it and stop when one is not
            finite, so that the weights stay the last good ones. With the rule `NonFinite` or
            `ExplodingTensor`.
        actions: what else to do when a rule finds something, such as `[{"name": "webhook",
            "endpoint": "https://..."}]`.
        resume: go on behind the last step that the run in `out_dir` holds, finished or not.
        overwrite: delete the finished or interrupted run in `out_dir` first.

    Raises:
        SMDebugRuntimeError: there is no out_dir; it holds a finished run; another live process
            writes to it as this worker.
        SMDebugValueError, SMDebugTypeError: an argument makes no sense.

    Example:
        >>> hook = Hook("/tmp/run", include_collections=["gradients"])  # doctest: +SKIP
        >>> hook.register_module(model)  # doctest: +SKIP
        >>> hook.register_loss(loss_function)  # doctest: +SKIP
    """

    collection_class = Collection
    default_collections: ClassVar[dict[str, tuple[str, ...]]] = {
        CollectionKeys.ALL: (),
        CollectionKeys.DEFAULT: (),
        CollectionKeys.WEIGHTS: ("^(?!gradient).*weight",),
        CollectionKeys.BIASES: ("^(?!gradient).*bias",),
        CollectionKeys.GRADIENTS: ("^gradient",),
        CollectionKeys.LOSSES: ("[Ll]oss_(?!input).*output",),
        CollectionKeys.SCALARS: ("^scalar",),
    }
    always_saved = frozenset({CollectionKeys.LOSSES})
    can_stop_before_update = True

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
        super().__init__(options)
        self._registrations: dict[Registration, Handle] = {}
        self._losses: dict[torch.nn.Module, Handle] = {}
        self._gradients = Gradients(self._offer, self._entered())
        known = {each for group in self.default_collections.values() for each in group}
        self._known_regexes = known
        of_rules = frozenset(fed.collection.name for fed in self._fed)
        self._activations = Activations(self._offer, self._entered, known, of_rules)
        self._shard_gradients = FsdpGradients(self._gradients, self._entered)
        self._extremes = MinMax()
        self._updates = OptimizerGuard(self) if options.before_update else None
        self._frozen: tuple[str, ...] = ()
        # What was registered when the present step began.
        self._begun: list[Registration] = []
        self._known_losses: set[str] = set()
        # The last step at which a loss was computed by a module.
        self.last_loss_step: int | None = None
        self._warned = False

    # ---- registering

    def register_module(
        self,
        module: torch.nn.Module,
        *,
        begins_steps: bool = True,
        follow_training: bool = False,
    ) -> Handle:
        """Watches a module: each of its forwards is a step.

        Args:
            module: the outermost module that training calls. One that torch.compile made is
                registered itself: compile first, then register.
            begins_steps: False for a further module of the same training: its forwards belong to
                the step that another one began.
            follow_training: the mode is TRAIN or EVAL as `module.training` says when a step begins.

        Returns:
            A handle that takes the registration back; also a context manager.

        Raises:
            SMDebugTypeError: it is no module.
            SMDebugError: it, or a part of it, is registered already.

        Example:
            >>> handle = hook.register_module(model)  # doctest: +SKIP
        """
        if not isinstance(module, torch.nn.Module):
            raise SMDebugTypeError(
                f"module must be a torch.nn.Module, got {validation.short_repr(module)} of type "
                f"{type(module).__name__}"
            )
        registration = Registration(module, list(self._registrations))
        registration.begins_steps = validation.boolean("begins_steps", begins_steps)
        registration.follows_training = validation.boolean("follow_training", follow_training)
        for known in self._registrations:
            shared = {*known.modules.values()} & {*registration.modules.values()}
            if shared:
                raise SMDebugError(
                    f"module must not be registered twice, got {registration.name}, which shares "
                    f"{type(shared.pop()).__name__} with the registered {known.name}; remove that "
                    "registration first, or register only the outer module"
                )

        def begin(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            self._on_forward(registration, args, kwargs)

        watched = self._activations

        def remove() -> None:
            detach()
            self._registrations.pop(registration, None)
            self._begun = [each for each in self._begun if each is not registration]
            self._activations.stop()
            self._gradients.forget(registration)
            self._plan.forget()

        with self._lock:
            if self._closed:
                # Nothing would take it off again.
                return Handle(lambda: None)
            detach = around_forward(module, begin, watched.root_ended, lambda: watched.runs_eagerly)
            for fed in self._fed:
                self._known_regexes |= include_layers(fed, registration.kinds())
            self._collections_asked_for = True
            self._registrations[registration] = Handle(remove)
            # The steps of the others save its parameters too.
            self._plan.forget()
            return self._registrations[registration]

    def register_hook(self, module: torch.nn.Module) -> Handle:
        """Does what `register_module` does, or `register_loss` when it is a loss."""
        if isinstance(module, _Loss):
            return self.register_loss(module)
        return self.register_module(module)

    def register_loss(self, loss_module: torch.nn.Module) -> Handle:
        """Watches a loss: what it takes and returns is named after its class.

        Args:
            loss_module: a module that computes a loss; it may be one of several, also of one class.

        Returns:
            A handle that takes the registration back.

        Raises:
            SMDebugTypeError: it is no module.

        Example:
            >>> hook.register_loss(torch.nn.CrossEntropyLoss())  # doctest: +SKIP
        """
        if not isinstance(loss_module, torch.nn.Module):
            raise SMDebugTypeError(
                f"loss_module must be a torch.nn.Module, such as torch.nn.CrossEntropyLoss(), got "
                f"{validation.short_repr(loss_module)}; the value of a loss function is saved by "
                'hook.save_tensor("loss", loss, "losses")'
            )
        if loss_module in self._losses:
            return self._losses[loss_module]
        name = type(loss_module).__name__
        hooks = HookSet()

        def after(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self._take_loss(name, args, kwargs, output)

        def remove() -> None:
            hooks.remove()
            self._losses.pop(loss_module, None)

        with self._lock:
            if self._closed:
                return Handle(lambda: None)
            callback = Callback(after, takes=4)
            hooks.add(loss_module.register_forward_hook(callback, with_kwargs=True))
            self._know_loss(name)
            self._losses[loss_module] = Handle(remove)
            return self._losses[loss_module]

    def _know_loss(self, name: str) -> None:
        if name not in self._known_losses:
            self._known_losses.add(name)
            for fed in self._fed:
                include_loss(fed, name)
            self._collections_asked_for = True

    def loss_computed(
        self, loss_module: torch.nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        """Saves what a loss has taken and returned; for losses that live for one call only.

        Args:
            loss_module: the loss, registered or not.
            args: the arguments of its forward.
            kwargs: its keyword arguments.
            output: what it returned.

        Example:
            >>> hook.loss_computed(loss, (output, labels), {}, value)  # doctest: +SKIP
        """
        name = type(loss_module).__name__
        self._know_loss(name)
        self._take_loss(name, args, kwargs, output)

    def _take_loss(self, name: str, args: Any, kwargs: Any, output: Any) -> None:
        self._require_steps(name)
        # One that activation checkpointing computes again is of the same step.
        self.last_loss_step = self._steps.step
        capture = self._capture
        if capture is not None and capture.plan is not None and not in_backward():
            with self._entered():
                if self._activations.cares(capture.plan, name, "input"):
                    self._activations.offer(name, "input", args, kwargs)
                self._activations.offer(name, "output", output)

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """Returns a collection of this hook, made when there is none; see `BaseHook`."""
        return cast("Collection", super().get_collection(name, create))

    def record_tensor_value(self, tensor_name: str, tensor_value: torch.Tensor) -> None:
        """Saves a tensor as `<tensor_name>_output_<i>`, if a collection matches. Deprecated.

        `save_tensor` does it under the name itself, to collections that are named.

        Example:
            >>> hook.record_tensor_value("loss", loss)  # doctest: +SKIP
        """
        if not isinstance(tensor_value, torch.Tensor):
            raise SMDebugTypeError(
                f"tensor_value must be a torch.Tensor, got {validation.short_repr(tensor_value)}"
            )
        validation.text("tensor_name", tensor_name)
        if not self._steps.begun and not self._closed:
            raise SMDebugRuntimeError(
                f"record_tensor_value({tensor_name!r}) must come after the first forward of a "
                "registered module, got it before any step"
            )
        with self._entered():
            self._activations.offer(tensor_name, "output", tensor_value)
        self._guard.raise_if_asked()

    @property
    def has_registered_module(self) -> bool:
        """Whether a module is registered."""
        return bool(self._registrations)

    @property
    def has_registered_loss_module(self) -> bool:
        """Whether a loss is registered."""
        return bool(self._losses)

    @property
    def module_set(self) -> set[torch.nn.Module]:
        """All registered modules with their parts."""
        return {part for each in self._registrations for part in each.modules.values()}

    # ---- a step

    def begin_step(self, module: torch.nn.Module) -> None:
        """Begins a step, where no forward of a registered module does.

        Args:
            module: one that was registered with `begins_steps=False`. What its parts take and
                return from now on is saved until its own forward ends, if it is called at all.

        Raises:
            SMDebugError: the module is not registered.

        Example:
            >>> hook.register_module(model, begins_steps=False)  # doctest: +SKIP
            >>> hook.begin_step(model)  # doctest: +SKIP
        """
        for registration in self._registrations:
            if registration.module is module:
                registration.calls += 1
                self._begin_forward(registration, (), {})
                return
        if not self._closed and not self._forked:
            raise SMDebugError(
                "module must be registered first, "
                f"got {validation.short_repr(type(module).__name__)}; "
                "call hook.register_module(module, begins_steps=False)"
            )

    def _require_steps(self, loss: str) -> None:
        """Says, once, that losses are computed and no step was seen."""
        if not self._steps.begun and self._registrations and not self._warned and not self._closed:
            self._warned = True
            logger.warning(
                "%s was computed, but no forward of the registered %s was seen, so nothing is "
                "saved; register the object that training calls (with torch.compile: the compiled "
                "module, after compiling)",
                loss, ", ".join(each.name for each in self._registrations),
            )  # fmt: skip

    def _on_forward(self, registration: Registration, args: Any, kwargs: Any) -> None:
        if in_backward() or self._closed or self._forked:
            return
        registration.calls += 1
        if registration.begins_steps:
            self._begin_forward(registration, args, kwargs)
        else:
            self._go_on(registration, args, kwargs)

    def _go_on(self, registration: Registration, args: Any, kwargs: Any) -> None:
        """A further module is called in a step that has begun."""
        capture = self._capture
        if capture is None or capture.plan is None:
            return
        with self._entered():
            if self._closed:
                return
            if registration.calls == 1 and registration not in self._begun:
                self._take_weights(registration, capture)
                self._gradients.begin(capture, list(self._registrations))
            self._activations.watch(registration, capture.plan, args, kwargs)

    def _begin_forward(self, registration: Registration, args: Any, kwargs: Any) -> None:
        """Begins a step with the forward of a module."""
        self._stop_if_asked()
        # All at once: the forward of another thread would end the step before anything is taken.
        with self._lock:
            self._begin_and_take(registration, args, kwargs)

    def _begin_and_take(self, registration: Registration, args: Any, kwargs: Any) -> None:
        if registration.follows_training:
            training = original_module(registration.module).training
            self._steps.set_mode(ModeKeys.TRAIN if training else ModeKeys.EVAL)
        capture = self._begin_step()
        if capture is None:
            self._stop_watching()
            return
        plan = capture.plan
        assert plan is not None
        self._activations.begin_step()
        self._extremes.begin_step()
        # The number of parameters and modules that torch has ever registered: as long as it stays
        # the same, a model of which nothing was wanted has nothing new to offer.
        mark = (registration, registered_parts())
        if plan.memory.get("quiet") == mark:
            with self._lock:
                self._gradients.stop()
            return
        with self._entered():
            if self._closed:
                # By another thread, meanwhile: nothing is put on the model any more.
                return
            registrations = self._begun = list(self._registrations)
            if any([each.refresh() for each in registrations]):
                # What is remembered is about parts that may be gone.
                self._plan.forget()
                self._gradients.stop()
            taken = False
            for each in registrations:
                taken = self._take_weights(each, capture) or taken
            taken = self._gradients.begin(capture, registrations) or taken
            self._note_frozen(self._gradients.frozen)
            taken = self._activations.watch(registration, plan, args, kwargs) or taken
            self._shard_gradients.watch(registration)
            plan.memory["quiet"] = None if taken else mark

    def _note_frozen(self, names: tuple[str, ...]) -> None:
        """Has the run say which parameters somebody keeps, or kept at first, from training."""
        if names != self._frozen:
            self._frozen = names
            if names:
                self.get_collection(FROZEN_PARAMETERS).add(list(names))

    def _take_weights(self, registration: Registration, capture: StepCapture) -> bool:
        """Takes the weights; False if there are none to take at such steps."""
        plan = capture.plan
        assert plan is not None
        if plan.armed:
            for name, parameter in registration.parameters():
                self._offer(name, parameter)
            return True
        key = ("weights", registration, registration.version)
        weights = plan.memory.get(key)
        if weights is None:
            weights = plan.memory[key] = Weights(registration.parameters(), plan)
        assert isinstance(weights, Weights)
        # Parameters that are not made yet may be wanted when they are.
        return weights.take(capture, self._offer) or registration.lazy

    # ---- what BaseHook asks

    def _worker(self) -> Worker:
        rank, count = _rank_and_count()
        name = self._options.worker or (CHIEF_WORKER if count == 1 else f"worker_{rank}")
        return Worker(name, count, rank == 0)

    def _as_tensor(self, key: str, value: Any) -> Any:
        return value if isinstance(value, torch.Tensor) else self._as_array(key, value)

    def _as_array(self, key: str, value: Any) -> Array:
        if not isinstance(value, torch.Tensor):
            return super()._as_array(key, value)
        tensor = local_tensor(value, key)
        if tensor is None:
            raise SMDebugTypeError(
                f"{key} must be a tensor with values, got {validation.short_repr(value)}"
            )
        return to_numpy(tensor.cpu().clone())

    def _take(self, name: str, tensor: Any, want: SaveRequest) -> Capture | None:
        if not isinstance(tensor, torch.Tensor):
            return super()._take(name, tensor, want)
        local = local_tensor(tensor, name)
        if local is None:
            return None
        if local.device.type == "cpu":
            return self._extremes.take(name, tensor, local, want)
        return DeviceTensorCapture(name, local, want)

    def _finish_taking(self, capture: StepCapture) -> list[Capture]:
        taken = super()._finish_taking(capture)
        self._gradients.handed_over()
        self._extremes.handed_over()
        on_device = [each for each in taken if isinstance(each, DeviceTensorCapture)]
        if on_device:
            DeviceTensorCapture.send(on_device)
        return taken

    def _is_finite(self, tensor: Any) -> bool:
        local = local_tensor(tensor, "")
        return local is None or is_finite(local)

    def _hold(self, tensor: Any) -> Any:
        # Nothing would tell that a tensor of inference mode was overwritten meanwhile.
        return tensor.clone() if tensor.is_inference() else tensor

    def _version(self, tensor: Any) -> object:
        return None if tensor.is_inference() else tensor._version

    def _resolve_collections(self) -> None:
        names: dict[int, list[str]] = {}
        for registration in self._registrations:
            for name, parameter in registration.parameters():
                names.setdefault(id(parameter), []).append(name)
        for collection in self.collection_manager.get_collections().values():
            if isinstance(collection, Collection):
                collection.resolve(lambda each: names.get(id(each), []), self._module_name)

    def _module_name(self, module: torch.nn.Module) -> str | None:
        for registration in self._registrations:
            for path, known in registration.modules.items():
                if known is module or registration.module is module:
                    return path if known is module else registration.name
        return type(module).__name__ if module in self._losses else None

    def _detach(self) -> None:
        for registration in self._registrations:
            if not registration.calls and not self._warned:
                logger.warning(
                    "the registered %s was never called; register the object that training calls "
                    "(with torch.compile: the compiled module, after compiling)",
                    registration.name,
                )
        for handle in [*self._registrations.values(), *self._losses.values()]:
            handle.remove()
        self._stop_watching()
        if self._updates is not None:
            self._updates.remove()

    def _stop_watching(self) -> None:
        with self._lock:
            self._activations.stop()
            self._gradients.stop()
            self._shard_gradients.stop()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._stop_watching()


TornasoleHook = Hook


def _rank_and_count() -> tuple[int, int]:
    """The place of this process among those of the job; (0, 1) when it is alone."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return environment.distributed_rank()
