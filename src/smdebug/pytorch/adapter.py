"""The adapter for PyTorch: from its module and gradient hooks to the pipeline."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from smdebug.config import environment, validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.log import WarnOnce
from smdebug.exceptions import SMDebugError, SMDebugRuntimeError, SMDebugTypeError
from smdebug.hook.adapter import Adapter
from smdebug.hook.handles import Handle
from smdebug.hook.rules.rule_layers import include_layers
from smdebug.hook.worker import CHIEF_WORKER, Worker
from smdebug.mode_keys import ModeKeys
from smdebug.pytorch.activations import Activations
from smdebug.pytorch.collection import Collection
from smdebug.pytorch.context import in_backward, is_traced
from smdebug.pytorch.fsdp import FsdpGradients
from smdebug.pytorch.losses import MISSING_STEPS, Losses
from smdebug.pytorch.minmax import MinMax
from smdebug.pytorch.naming import original_module
from smdebug.pytorch.optimizer_guard import OptimizerGuard
from smdebug.pytorch.parameters import Gradients, Weights
from smdebug.pytorch.registration import (
    Callback,
    Registration,
    around_forward,
    registered_parts,
)
from smdebug.pytorch.staging_buffers import StagingBuffer
from smdebug.pytorch.tensors import DeviceTensorCapture, is_finite, local_tensor, on_host, to_numpy

if TYPE_CHECKING:
    from smdebug.config.collection_manager import CollectionManager
    from smdebug.hook.capture import Capture, StepCapture
    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import SaveRequest, StepCache
    from smdebug.reductions import Array

logger = logging.getLogger("smdebug.hook")

# The collection of the parameters with `requires_grad=False`.
FROZEN_PARAMETERS = "frozen_parameters"
_NOTHING = Handle(lambda: None)


class PytorchAdapter(Adapter):
    """Watches registered modules and losses, and captures PyTorch tensors.

    Args:
        pipeline: the pipeline of the hook.

    Attributes:
        registrations: the registered modules.
        losses: the losses.
    """

    framework = "PyTorch"
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

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.registrations: dict[Registration, Handle] = {}
        # Regexes that say nothing about names of tensors that were not seen yet.
        self._known_regexes = {
            each for group in self.default_collections.values() for each in group
        }
        self._gradients = Gradients(pipeline)
        self._activations = Activations(pipeline, self._known_regexes)
        self._warnings = WarnOnce(logger)
        self.losses = Losses(pipeline, self._activations, self.registrations, self._warnings)
        self._fsdp = FsdpGradients(pipeline, self._gradients)
        self._minmax = MinMax()
        self._weights: StepCache[Weights] = pipeline.new_cache()
        # The last registration, and parts, of which nothing was captured at such a step.
        self._irrelevant: StepCache[tuple[Registration, int]] = pipeline.new_cache()
        self._optimizer_guard: OptimizerGuard | None = None
        self._frozen: tuple[str, ...] = ()
        # What was registered when the current step began.
        self._begun: list[Registration] = []
        # Whether there may be hooks on modules or parameters for the current step.
        self._attached = False

    # ---- registering

    def register_module(
        self, module: torch.nn.Module, begins_steps: bool, follow_training: bool
    ) -> Handle:
        """Watch a module; see `Hook.register_module`."""
        pipeline = self.pipeline
        registration = Registration(module, list(self.registrations))
        registration.begins_steps = begins_steps
        registration.follows_training = follow_training
        for known in self.registrations:
            shared = {*known.modules.values()} & {*registration.modules.values()}
            if shared:
                raise SMDebugError(
                    f"module must not be registered twice, got {registration.name}, which shares "
                    f"{type(shared.pop()).__name__} with the registered {known.name}; remove that "
                    "registration first, or register only the outer module"
                )

        def remove() -> None:
            detach()
            self.registrations.pop(registration, None)
            self._begun = [each for each in self._begun if each is not registration]
            self._activations.stop()
            self._gradients.forget(registration)
            pipeline.invalidate()

        with pipeline.guarded.lock:
            if not pipeline.active:
                # Nothing would remove it again.
                return _NOTHING
            if pipeline.options.before_update and self._optimizer_guard is None:
                self._optimizer_guard = OptimizerGuard(pipeline, self)
            detach = around_forward(
                module, StepCallback(self, registration), self._activations.root_ended,
                lambda: self._activations.runs_eagerly,
            )  # fmt: skip
            for each in pipeline.collections.of_rules:
                self._known_regexes |= include_layers(each, registration.kinds())
            pipeline.collections.mark_changed()
            self.registrations[registration] = Handle(remove)
            # The steps of the other modules save its parameters, too.
            pipeline.invalidate()
            return self.registrations[registration]

    def record_tensor(self, name: str, tensor: torch.Tensor) -> None:
        """Capture a tensor as an output; see `Hook.record_tensor_value`."""
        if not self.pipeline.steps.begun and self.pipeline.active:
            raise SMDebugRuntimeError(
                f"record_tensor_value({name!r}) must come after the first forward pass of a "
                "registered module, got it before any step"
            )
        with self.pipeline.guarded:
            self._activations.offer(name, "output", tensor)
        self.pipeline.errors.raise_pending()

    # ---- a step

    def begin_step(self, module: torch.nn.Module) -> None:
        """Begin a step; see `Hook.begin_step`."""
        for registration in self.registrations:
            if registration.module is module:
                registration.calls += 1
                self.begin_forward(registration, (), {})
                return
        if self.pipeline.active:
            raise SMDebugError(
                "module must be registered first, "
                f"got {validation.short_repr(type(module).__name__)}; "
                "call hook.register_module(module, begins_steps=False)"
            )

    def begin_forward(self, registration: Registration, args: Any, kwargs: Any) -> None:
        """Begin a step with the forward pass of a module."""
        pipeline = self.pipeline
        if pipeline.rules.request is not None:
            pipeline.stop_if_requested()
        # The lock is held throughout: a forward pass in another thread would end the step before
        # anything is captured.
        with pipeline.guarded.lock:
            if registration.follows_training:
                training = original_module(registration.module).training
                pipeline.set_mode(ModeKeys.TRAIN if training else ModeKeys.EVAL)
            current = pipeline.begin_step()
            if current is not None:
                self._capture_step(registration, current, args, kwargs)
            elif self._attached:
                self._stop_watching()

    def _capture_step(
        self, registration: Registration, current: StepCapture, args: Any, kwargs: Any
    ) -> None:
        """Capture the weights, and watch for gradients, inputs and outputs."""
        plan = current.plan
        assert plan is not None
        self._activations.begin_step()
        self._minmax.begin_step()
        # The number of parameters and modules that torch has ever registered: as long as it stays
        # the same, a model of which nothing was captured has nothing new.
        parts = (registration, registered_parts())
        if self._irrelevant.peek(plan, None) == parts:
            self._gradients.stop()
            return
        with self.pipeline.guarded:
            if not self.pipeline.active:
                # Closed by another thread, meanwhile: nothing is attached to the model anymore.
                return
            self._attached = True
            registrations = self._begun = list(self.registrations)
            if any([each.refresh() for each in registrations]):
                # What is cached may be about parts that no longer exist.
                self.pipeline.invalidate()
                self._gradients.stop()
            captured = False
            for each in registrations:
                captured = self._capture_weights(each, current) or captured
            captured = self._gradients.begin(current, registrations) or captured
            self._note_frozen(self._gradients.frozen)
            captured = self._activations.watch(registration, plan, args, kwargs) or captured
            self._fsdp.watch(registration)
            if not captured:
                self._irrelevant.put(plan, None, parts)

    def continue_step(self, registration: Registration, args: Any, kwargs: Any) -> None:
        """Watch a further module, which is called in a step that has begun."""
        current = self.pipeline.current
        if current is None or current.plan is None:
            return
        with self.pipeline.guarded:
            if not self.pipeline.active:
                return
            self._attached = True
            if registration.calls == 1 and registration not in self._begun:
                self._capture_weights(registration, current)
                self._gradients.begin(current, list(self.registrations))
            self._activations.watch(registration, current.plan, args, kwargs)

    def _capture_weights(self, registration: Registration, current: StepCapture) -> bool:
        """Capture the weights; return False if there are none to capture at such steps."""
        plan = current.plan
        assert plan is not None
        if plan.armed:
            for name, parameter in registration.parameters():
                self.pipeline.offer(name, parameter)
            return True
        key = (registration, registration.version)
        weights = self._weights.get(plan, key, lambda: Weights(registration.parameters(), plan))
        # Parameters that are not initialized yet may be saved when they are.
        return weights.capture(current, self.pipeline.offer) or registration.lazy

    def _note_frozen(self, names: tuple[str, ...]) -> None:
        """Record in the run which parameters are, or were at first, excluded from training."""
        if names != self._frozen:
            self._frozen = names
            for name in names:
                self.pipeline.collections.remember(name, (FROZEN_PARAMETERS,))
                self.pipeline.collections.add_tensor(FROZEN_PARAMETERS, name)

    # ---- tensors

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def to_array(self, key: str, value: Any) -> Array:
        if not isinstance(value, torch.Tensor):
            return super().to_array(key, value)
        tensor = local_tensor(value, key)
        if tensor is None:
            raise SMDebugTypeError(
                f"{key} must be a tensor with values, got {validation.short_repr(value)}"
            )
        return to_numpy(tensor.cpu().clone())

    def capture(
        self,
        name: str,
        tensor: Any,
        request: SaveRequest,
        last: Capture | None = None,
        time: float | None = None,
    ) -> Capture | None:
        if not isinstance(tensor, torch.Tensor):
            return super().capture(name, tensor, request, last, time)
        local = local_tensor(tensor, name)
        if local is None:
            return None
        if on_host(local):
            return self._minmax.capture(name, tensor, local, request, last, time)
        return DeviceTensorCapture(name, local, request, time)

    def complete(self, capture: StepCapture) -> None:
        if capture is self.pipeline.current:
            self._gradients.handed_over()
        on_device = []
        for each in capture.pending:
            if isinstance(each, StagingBuffer):
                each.send()
            elif isinstance(each, DeviceTensorCapture):
                on_device.append(each)
        if on_device:
            DeviceTensorCapture.send(on_device)

    def is_finite(self, tensor: Any) -> bool:
        local = local_tensor(tensor, "")
        return local is None or is_finite(local)

    def hold(self, tensor: Any) -> Any:
        # Nothing shows that a tensor of inference mode was overwritten.
        return tensor.clone() if tensor.is_inference() else tensor

    def version(self, tensor: Any) -> object:
        return None if tensor.is_inference() else tensor._version

    # ---- the job

    def worker(self) -> Worker:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            rank, count = distributed.get_rank(), distributed.get_world_size()
        else:
            rank, count = environment.distributed_rank()
        default = CHIEF_WORKER if count == 1 else f"worker_{rank}"
        return Worker(self.pipeline.options.worker or default, count, rank == 0)

    def resolve(self, collections: CollectionManager) -> None:
        names: dict[int, list[str]] = {}
        for registration in self.registrations:
            for name, parameter in registration.parameters():
                names.setdefault(id(parameter), []).append(name)
        for collection in collections.get_collections().values():
            if isinstance(collection, Collection):
                collection.resolve(lambda each: names.get(id(each), []), self._module_name)

    def _module_name(self, module: torch.nn.Module) -> str | None:
        for registration in self.registrations:
            for path, known in registration.modules.items():
                if known is module or registration.module is module:
                    return path if known is module else registration.name
        return type(module).__name__ if module in self.losses.registered else None

    # ---- the end

    def detach(self) -> None:
        uncalled = [each.name for each in self.registrations if not each.calls]
        if uncalled:
            self._warnings.warning(
                MISSING_STEPS,
                "the registered %s was never called; register the object that training calls "
                "(with torch.compile: the compiled module, after compiling)", ", ".join(uncalled),
            )  # fmt: skip
        for handle in [*self.registrations.values(), *self.losses.registered.values()]:
            handle.remove()
        self._stop_watching()
        if self._optimizer_guard is not None:
            self._optimizer_guard.remove()

    def after_fork(self) -> None:
        self._stop_watching()

    def _stop_watching(self) -> None:
        with self.pipeline.guarded.lock:
            self._activations.stop()
            self._gradients.stop()
            self._fsdp.stop()
            self._attached = False


class StepCallback(Callback):
    """The forward pre-hook of a registered module: begins a step.

    In one piece, because it runs at every step.

    Args:
        adapter: the adapter.
        registration: the module.
    """

    def __init__(self, adapter: PytorchAdapter, registration: Registration) -> None:
        super().__init__(adapter.begin_forward, takes=3)
        self._adapter = adapter
        self._registration = registration

    def __call__(self, *arguments: Any) -> None:
        adapter, registration = self._adapter, self._registration
        if len(arguments) != 3 or is_traced() or in_backward() or not adapter.pipeline.active:
            return
        _, args, kwargs = arguments
        registration.calls += 1
        if registration.begins_steps:
            adapter.begin_forward(registration, args, kwargs)
        else:
            adapter.continue_step(registration, args, kwargs)
