"""The adapter for MXNet's Gluon: forward passes of registered blocks are steps."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import mxnet as mx

from smdebug.config.collection import CollectionKeys
from smdebug.config.log import WarnOnce
from smdebug.hook.adapter import Adapter
from smdebug.hook.handles import Callback, Handle
from smdebug.hook.naming import tensors_in
from smdebug.hook.rules.rule_layers import include_layers, include_loss
from smdebug.hook.worker import Worker
from smdebug.mxnet.activations import Activations
from smdebug.mxnet.backward import observe_backward
from smdebug.mxnet.collection import Collection
from smdebug.mxnet.forward_passes import ForwardPasses
from smdebug.mxnet.gradients import Gradients
from smdebug.mxnet.naming import DEFAULT_COLLECTIONS, block_name
from smdebug.mxnet.parameters import Parameters
from smdebug.mxnet.registration import Registration, device_of
from smdebug.mxnet.tensors import NDArray, NDArrayCapture, snapshot, to_numpy

if TYPE_CHECKING:
    from smdebug.hook.capture import Capture, StepCapture
    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import SaveRequest
    from smdebug.reductions import Array

logger = logging.getLogger("smdebug.hook")


class MxnetAdapter(Adapter):
    """Begins a step with every forward pass of a registered block, and offers its tensors.

    Attributes:
        registrations: the registered blocks without the losses, in the order of registration.
        handles: the handles of all registered blocks, losses included.
    """

    framework = "MXNet"
    collection_class = Collection
    default_collections = DEFAULT_COLLECTIONS
    always_saved = frozenset({CollectionKeys.LOSSES})

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.registrations: list[Registration] = []
        self.handles: dict[Any, Handle] = {}
        self._forward_passes = ForwardPasses()
        self._activations = Activations(pipeline, self._forward_passes)
        self._parameters = Parameters(pipeline, self.registrations)
        self._gradients = Gradients(pipeline, self._parameters)
        self._backward: Handle | None = None
        # What the current step was begun by, and the devices on which it had forward passes.
        self._step_key: tuple[Any, ...] = ()
        self._step_devices: set[str] = set()
        self._warnings = WarnOnce(logger)

    # ---- registration

    def register(self, block: Any) -> Handle:
        """Observe a block; see `Hook.register_block`."""
        if not self.pipeline.active:
            return Handle(lambda: None)
        if block in self.handles:
            logger.warning("%s is already registered", block_name(block))
        elif isinstance(block, mx.gluon.loss.Loss):
            self._register_loss(block)
        else:
            self._register_model(block)
        return self.handles[block]

    def _register_model(self, block: Any) -> None:
        registration = Registration(block)
        self._parameters.warn_about_duplicates(registration)

        def before(called: Any, inputs: Any) -> None:
            if not _is_symbolic(inputs):
                # The frame of the block's call, which calls the callback, which calls this.
                self._forward_passes.begin(sys._getframe(2))
                self._before_forward(registration, inputs)

        def after(called: Any, inputs: Any, outputs: Any) -> None:
            if not _is_symbolic(inputs):
                self._after_forward(registration, inputs, outputs)
                self._forward_passes.end()

        attached = [
            block.register_forward_pre_hook(Callback(before)),
            block.register_forward_hook(Callback(after)),
        ]

        def remove() -> None:
            for each in attached:
                each.detach()
            self._activations.detach()
            self.registrations.remove(registration)
            self.handles.pop(block)
            self.pipeline.invalidate()

        for collection in self.pipeline.collections.of_rules:
            self._activations.known_regexes |= include_layers(collection, registration.layers())
        if self._backward is None:
            self._backward = observe_backward(self._gradients)
        self.registrations.append(registration)
        self.handles[block] = Handle(remove)

    def _register_loss(self, loss: Any) -> None:
        name = block_name(loss)

        def after(called: Any, inputs: Any, outputs: Any) -> None:
            pipeline = self.pipeline
            if not pipeline.steps.begun and pipeline.active:
                self._warnings.warning(
                    "no steps",
                    "%s was computed, but no registered block had a forward pass, so nothing is "
                    "saved; register the block that training calls with hook.register_block", name,
                )  # fmt: skip
            current = pipeline.current
            if current is not None and current.plan is not None:
                with pipeline.guarded:
                    self._activations.offer(current.plan, name, inputs, outputs)

        attached = loss.register_forward_hook(Callback(after))

        def remove() -> None:
            attached.detach()
            self.handles.pop(loss)

        for collection in self.pipeline.collections.of_rules:
            include_loss(collection, name)
        self.handles[loss] = Handle(remove)

    # ---- steps

    def _before_forward(self, registration: Registration, inputs: Any) -> None:
        pipeline = self.pipeline
        if not pipeline.active:
            return
        registration.calls += 1
        refreshed = False
        if not self._continues_step(registration, inputs):
            # Ending a step that is saved refreshes the registrations, too.
            refreshed = pipeline.current is not None
            pipeline.stop_if_requested()
            pipeline.begin_step()
            self._activations.begin_step()
            self._gradients.begin_step()
        self._gradients.note_thread()
        current = pipeline.current
        if current is None or current.plan is None:
            self._activations.detach()
            return
        with pipeline.guarded:
            if not refreshed:
                self._refresh()
            self._activations.attach(self.registrations, current.plan, self.handles)

    def _continues_step(self, registration: Registration, inputs: Any) -> bool:
        """Return whether a forward pass is another part of a batch split across devices."""
        device = next((device_of(array.ctx) for _, array in tensors_in(inputs, NDArray)), "")
        key = registration, self.pipeline.steps.mode, mx.autograd.is_training()
        devices = {*self._step_devices, device}
        # A net that has moved to another device since then is not on both of them.
        continues = (
            key == self._step_key
            and len(devices) > len(self._step_devices)
            and devices <= set(registration.devices())
        )
        self._step_key, self._step_devices = key, devices if continues else {device}
        return continues

    def _after_forward(self, registration: Registration, inputs: Any, outputs: Any) -> None:
        current = self.pipeline.current
        if current is not None and current.plan is not None:
            with self.pipeline.guarded:
                # A forward pass may create blocks and parameters.
                registration.refresh()
                self._activations.offer(current.plan, registration.name, inputs, outputs)

    def complete(self, capture: StepCapture) -> None:
        """Capture the gradients, and the parameters, which have been updated by now."""
        if capture is not self.pipeline.current:
            return
        self._refresh()
        if capture.plan is None:
            return
        for gradient in self._gradients.pop_captures():
            capture.add(gradient)
        for name, parameter in self._parameters.relevant(capture.plan):
            array = self._parameters.read(name, parameter.list_data)
            if array is not None:
                self.pipeline.offer(name, array)

    def _refresh(self) -> None:
        for registration in self.registrations:
            registration.refresh()

    # ---- tensors

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, NDArray)

    def to_array(self, key: str, value: Any) -> Array:
        if self.is_tensor(value):
            return to_numpy(snapshot(value))
        return super().to_array(key, value)

    def capture(
        self,
        name: str,
        tensor: Any,
        request: SaveRequest,
        last: Capture | None = None,
        time: float | None = None,
    ) -> Capture | None:
        return NDArrayCapture(name, snapshot(tensor), request, time)

    def hold(self, tensor: Any) -> Any:
        # A copy: an array has no version that would show that it was overwritten.
        return snapshot(tensor)

    # ---- the job

    def worker(self) -> Worker:
        rank, workers = 0, 1
        horovod: Any = sys.modules.get("horovod.mxnet")
        if horovod is not None and horovod.is_initialized():
            rank, workers = horovod.rank(), horovod.size()
        return Worker(self.pipeline.options.worker or f"worker_{rank}", workers, rank == 0)

    def detach(self) -> None:
        for registration in self.registrations:
            if not registration.calls:
                logger.warning(
                    "the registered %s was never called; register the block that training calls",
                    registration.name,
                )
        for handle in list(self.handles.values()):
            handle.remove()
        if self._backward is not None:
            self._backward.remove()
            self._backward = None
        self._activations.detach()
        self._gradients.begin_step()

    def after_fork(self) -> None:
        self._activations.detach()


def _is_symbolic(inputs: Any) -> bool:
    """Return whether a block is called with symbols: MXNet makes a graph, and computes nothing."""
    return next(tensors_in(inputs, mx.sym.Symbol), None) is not None
