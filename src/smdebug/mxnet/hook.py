"""The hook for MXNet's Gluon. It has over 400 lines because a third document its arguments."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, ClassVar, cast

import mxnet as mx
import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.config.options import DEFAULT_QUEUE_BYTES, HookOptions
from smdebug.exceptions import SMDebugTypeError
from smdebug.hook.base import BaseHook
from smdebug.hook.handles import Callback, Handle
from smdebug.hook.naming import tensors_in
from smdebug.hook.rule_layers import include_layers, include_loss
from smdebug.hook.worker import CHIEF_WORKER, Worker
from smdebug.mxnet.activations import Activations
from smdebug.mxnet.backward import watch_backward
from smdebug.mxnet.collection import Collection
from smdebug.mxnet.forwards import Forwards
from smdebug.mxnet.gradients import Gradients
from smdebug.mxnet.registration import Registration, block_name, device_of
from smdebug.mxnet.tensors import NDArray, NDArrayCapture, snapshot, to_numpy

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from smdebug.config.reduction_config import ReductionConfig
    from smdebug.config.save_config import SaveConfig, SaveConfigMode
    from smdebug.hook.capture import Capture, StepCapture
    from smdebug.hook.plan import SaveRequest, StepPlan
    from smdebug.reductions import Array

logger = logging.getLogger("smdebug.hook")

# The collection that names parameters with `grad_req="null"`.
FROZEN_PARAMETERS = "frozen_parameters"


class Hook(BaseHook):
    """Saves tensors out of a training job with MXNet's Gluon.

    Every forward of a registered block is a step; where a batch is split among devices, the
    forwards of its parts are one. At the steps its schedule names the hook saves what its
    collections hold: `weights` and `biases` (after they were updated), `gradients` (as backward
    left them), `losses`, inputs and outputs of blocks. What parameters and gradients have on
    several devices is saved of the first.

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
        before_update: not possible here: True is refused.
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
        >>> hook.register_block(net)  # doctest: +SKIP
        >>> hook.register_block(loss_function)  # doctest: +SKIP
    """

    collection_class = Collection
    default_collections: ClassVar[dict[str, tuple[str, ...]]] = {
        CollectionKeys.ALL: (),
        CollectionKeys.DEFAULT: (),
        CollectionKeys.WEIGHTS: ("^(?!gradient).*weight",),
        CollectionKeys.BIASES: ("^(?!gradient).*bias",),
        CollectionKeys.GRADIENTS: ("^gradient",),
        # smdebug 1.0 knew one character behind `loss`, and lost the eleventh loss of a process.
        CollectionKeys.LOSSES: (r".*loss(.|\d*)_(?!input).*output",),
        CollectionKeys.SCALARS: ("^scalar",),
    }
    always_saved = frozenset({CollectionKeys.LOSSES})

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
        self._losses: dict[Any, Handle] = {}
        known = {each for group in self.default_collections.values() for each in group}
        self._known_regexes = known
        self._forwards = Forwards()
        self._activations = Activations(self._offer, self._entered, self._forwards, known)
        self._backward: Handle | None = None
        self._gradients = Gradients(self)
        # What the present step is of, and the devices on which its parts ran.
        self._part_of: tuple[Any, ...] = ()
        self._devices: set[str] = set()
        self._frozen: tuple[str, ...] = ()
        self._said: set[str] = set()

    # ---- registering

    def register_block(self, block: Any) -> Handle:
        """Watches a block: each of its forwards is a step. Of a loss, watches what it computes.

        Args:
            block: the outermost block that training calls, or a `gluon.loss.Loss`. It may be
                initialised and hybridised before or after.

        Returns:
            A handle that takes the registration back; also a context manager.

        Raises:
            SMDebugTypeError: it is no block.

        Example:
            >>> hook.register_block(net)  # doctest: +SKIP
            >>> hook.register_block(gluon.loss.SoftmaxCrossEntropyLoss())  # doctest: +SKIP
        """
        if not isinstance(block, mx.gluon.Block):
            raise SMDebugTypeError(
                f"block must be a mxnet.gluon.Block, got {validation.short_repr(block)} of type "
                f"{type(block).__name__}"
            )
        known = self._handle_of(block)
        if known is not None:
            logger.warning("%s is registered already", block_name(block))
            return known
        self._collections_asked_for = True
        # What is remembered does not know of it.
        self._plan.forget()
        if isinstance(block, mx.gluon.loss.Loss):
            return self._register_loss(block)
        return self._register_model(block)

    def register_hook(self, block: Any) -> Handle:
        """Does what `register_block` does."""
        return self.register_block(block)

    def _handle_of(self, block: Any) -> Handle | None:
        for registration, handle in self._registrations.items():
            if registration.block is block:
                return handle
        return self._losses.get(block)

    def _register_model(self, block: Any) -> Handle:
        registration = Registration(block)
        self._require_other_names(registration)

        def begin(called: Any, taken: Any) -> None:
            if not _is_symbolic(taken):
                # That of the block's call, which calls the callback.
                self._forwards.begin(sys._getframe(2))
                self._on_forward(registration, taken)

        def end(called: Any, taken: Any, returned: Any) -> None:
            if not _is_symbolic(taken):
                self._after_forward(registration, taken, returned)
                self._forwards.end()

        handles = [
            block.register_forward_pre_hook(Callback(begin)),
            block.register_forward_hook(Callback(end)),
        ]

        def remove() -> None:
            for each in handles:
                each.detach()
            self._activations.stop()
            self._registrations.pop(registration, None)
            self._plan.forget()

        for fed in self._fed:
            self._known_regexes |= include_layers(fed, registration.kinds())
        if self._backward is None:
            self._backward = watch_backward(self._gradients)
        self._registrations[registration] = Handle(remove)
        return self._registrations[registration]

    def _register_loss(self, loss: Any) -> Handle:
        name = block_name(loss)

        def after(called: Any, taken: Any, returned: Any) -> None:
            self._require_steps(name)
            capture = self._capture
            if capture is not None and capture.plan is not None:
                with self._entered():
                    self._activations.offer(capture.plan, name, taken, returned)

        handle = loss.register_forward_hook(Callback(after))

        def remove() -> None:
            handle.detach()
            self._losses.pop(loss, None)

        for fed in self._fed:
            include_loss(fed, name)
        self._losses[loss] = Handle(remove)
        return self._losses[loss]

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """Returns a collection of this hook, made when there is none; see `BaseHook`."""
        return cast("Collection", super().get_collection(name, create))

    @property
    def registered_blocks(self) -> set[Any]:
        """All registered blocks, losses included."""
        return {*(each.block for each in self._registrations), *self._losses}

    @property
    def model(self) -> Any:
        """The block that was registered first; None before."""
        return next((each.block for each in self._registrations), None)

    # ---- a step

    def _on_forward(self, registration: Registration, taken: Any) -> None:
        if self._closed or self._forked:
            return
        registration.calls += 1
        looked = False
        if not self._is_same_step(registration, taken):
            # The end of a step that saves looks at the blocks, too.
            looked = self._capture is not None
            self._stop_if_asked()
            if self._begin_step() is not None:
                self._activations.begin_step()
            self._gradients.begin_step()
        self._gradients.see_forward()
        capture = self._capture
        if capture is None or capture.plan is None:
            self._activations.stop()
            return
        with self._entered():
            if not looked:
                self._refresh()
            registrations = list(self._registrations)
            self._activations.watch(registrations, capture.plan, self.registered_blocks)

    def _is_same_step(self, registration: Registration, taken: Any) -> bool:
        """Whether a forward belongs to the step before: a batch is split among devices."""
        device = next((device_of(array.ctx) for _, array in tensors_in(taken, NDArray)), "")
        part_of = registration, self.mode, mx.autograd.is_training()
        devices = {*self._devices, device}
        same = part_of == self._part_of and len(devices) > len(self._devices)
        # Not so where the net has moved from one to the other.
        if same and not devices <= set(registration.devices()):
            same = False
        self._part_of, self._devices = part_of, devices if same else {device}
        return same

    def _after_forward(self, registration: Registration, taken: Any, returned: Any) -> None:
        capture = self._capture
        if capture is not None and capture.plan is not None and not self._forked:
            with self._entered():
                # A forward may make blocks and parameters.
                registration.refresh()
                self._activations.offer(capture.plan, registration.name, taken, returned)

    def _finish_taking(self, capture: StepCapture) -> list[Capture]:
        # The step ends: what was to be updated is updated, what was to be replaced is replaced.
        self._refresh()
        if capture.plan is not None:
            for taken in self._gradients.take_all():
                capture.add(taken)
            for name, parameter in self._parameters(capture.plan):
                arrays = self._read(name, parameter.list_data)
                if arrays is not None:
                    self._offer(name, arrays[0])
        return super()._finish_taking(capture)

    def _refresh(self) -> None:
        for registration in self._registrations:
            registration.refresh()

    def _parameters(self, plan: StepPlan, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """The parameters of all registered blocks that are of interest, or whose gradients are."""
        for registration in self._registrations:
            key = (prefix, registration, registration.version)
            if key not in plan.memory:
                every = registration.parameters.items()
                plan.memory[key] = [each for each in every if plan.interesting(prefix + each[0])]
            yield from cast("list[tuple[str, Any]]", plan.memory[key])

    def _read(self, name: str, read: Any) -> Any:
        """What a parameter has on each device; None, and a warning, where it has nothing."""
        try:
            return read()
        except RuntimeError as error:
            # It was not used yet, and has no shape; or only some of its rows can be asked for.
            if name not in self._said:
                self._said.add(name)
                logger.warning("%s is not saved at this step: %s", name, str(error).split(".")[0])
            return None

    def _require_other_names(self, registration: Registration) -> None:
        """Says that parameters of two nets have the same names, and cannot be told apart."""
        known: dict[str, Any] = {}
        for other in self._registrations:
            known.update(other.parameters)
        own = registration.parameters.items()
        same = [name for name, each in own if known.get(name, each) is not each]
        if same:
            logger.warning(
                "%s has parameters of the same names as a block that was registered before, such "
                "as %s: only those of one are saved; give the blocks prefixes",
                registration.name, same[0],
            )  # fmt: skip

    def _note_frozen(self, names: tuple[str, ...]) -> None:
        """Has the run say which parameters somebody keeps from training."""
        if names != self._frozen:
            self._frozen = names
            if names:
                self.get_collection(FROZEN_PARAMETERS).add(list(names))

    def _require_steps(self, loss: str) -> None:
        """Says, once, that losses are computed and no step was seen."""
        if not self._steps.begun and not self._closed and "" not in self._said:
            self._said.add("")
            logger.warning(
                "%s was computed, but no forward of a registered block was seen, so nothing is "
                "saved; give the block that training calls to hook.register_block", loss,
            )  # fmt: skip

    # ---- what BaseHook asks

    def _worker(self) -> Worker:
        rank, count = _rank_and_count()
        name = self._options.worker or (CHIEF_WORKER if count == 1 else f"worker_{rank}")
        return Worker(name, count, rank == 0)

    def _as_tensor(self, key: str, value: Any) -> Any:
        return value if isinstance(value, NDArray) else self._as_array(key, value)

    def _as_array(self, key: str, value: Any) -> Array:
        if not isinstance(value, NDArray):
            return super()._as_array(key, value)
        return to_numpy(snapshot(value))

    def _take(self, name: str, tensor: Any, want: SaveRequest) -> Capture | None:
        if not isinstance(tensor, NDArray):
            return super()._take(name, tensor, want)
        return NDArrayCapture(name, snapshot(tensor), want)

    def _is_finite(self, tensor: Any) -> bool:
        return bool(np.isfinite(self._as_array("tensor", tensor)).all())

    def _hold(self, tensor: Any) -> Any:
        # Nothing would tell that it was overwritten meanwhile.
        return snapshot(tensor)

    def _detach(self) -> None:
        for registration in self._registrations:
            if not registration.calls:
                logger.warning(
                    "the registered %s was never called; register the block that training calls",
                    registration.name,
                )
        for handle in [*self._registrations.values(), *self._losses.values()]:
            handle.remove()
        if self._backward is not None:
            self._backward.remove()
            self._backward = None
        self._activations.stop()
        self._gradients.begin_step()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._activations.stop()


TornasoleHook = Hook


def _is_symbolic(value: Any) -> bool:
    """Whether a block is called with symbols: a graph is made of it, and nothing is computed."""
    return any(True for _ in tensors_in(value, mx.sym.Symbol))


def _rank_and_count() -> tuple[int, int]:
    """The place of this process among those of the job; (0, 1) when it is alone."""
    horovod: Any = sys.modules.get("horovod.mxnet")
    if horovod is not None and horovod.is_initialized():
        return horovod.rank(), horovod.size()
    return 0, 1
