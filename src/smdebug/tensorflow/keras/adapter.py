"""Saves tensors of a Keras model: in `fit`, `evaluate` and `predict`, and in custom loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.config.collection import CollectionKeys
from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.adapter import TensorflowAdapter
from smdebug.tensorflow.backend import is_keras_3, keras, tf
from smdebug.tensorflow.collection import Collection
from smdebug.tensorflow.keras.layers import NamedModel
from smdebug.tensorflow.keras.metrics import Metrics
from smdebug.tensorflow.keras.replicas import (
    ReplicaCapture,
    ReplicatedOutput,
    local_replicas,
    replicating_strategy,
    worker_names,
    worker_of,
)
from smdebug.tensorflow.keras.rule_layers import include_layers
from smdebug.tensorflow.keras.step_inspector import StepInspector
from smdebug.tensorflow.keras.tape import Tapes
from smdebug.tensorflow.keras.variables import Variables
from smdebug.tensorflow.naming import KERAS_COLLECTIONS, LAYER_TENSORS, NOT_OF_A_LAYER

if TYPE_CHECKING:
    from smdebug.config.collection_manager import CollectionManager
    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import SavePlan
    from smdebug.hook.run.output import Output
    from smdebug.hook.worker import Worker
    from smdebug.storage.stop_requests import StopRequest

_TRAIN = ModeKeys.TRAIN


class KerasAdapter(TensorflowAdapter):
    """Begins a step for every batch of Keras and for every gradient tape.

    Args:
        pipeline: the pipeline.

    Attributes:
        model: the model that Keras trains, evaluates or predicts with; None without one.
        registered: the model that the user registered for a custom loop; None without one.
        named: the model that names refer to: whichever of the two was set last.
        metrics: saves what Keras reports.
        variables: saves variables.
        tapes: the gradient tapes.
    """

    framework = "Keras"
    default_collections = KERAS_COLLECTIONS

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.model: Any = None
        self.registered: Any = None
        self.named = NamedModel(lambda: self.resolve(pipeline.collections.manager))
        self.metrics = Metrics(pipeline)
        self.variables = Variables(pipeline, self.named)
        self.tapes = Tapes(self)
        self._inspector = StepInspector(pipeline, self.named, self.warn_once)
        # The model of the present `fit`; None outside one.
        self._fit_model: Any = None
        # Keras sets the model before a call by the user, and not before a validation in `fit`.
        self._model_was_set = False
        self._called_by_user: set[ModeKeys] = set()
        self._batch_open = False
        # Whether the next tensor that the user saves begins a step.
        self._user_step_due = False
        # The strategy in whose scope a tape was wrapped.
        self._strategy: Any = None

    # ---- models

    def set_model(self, model: Any) -> None:
        """Set the model that Keras trains, evaluates or predicts with."""
        # A custom loop may pass a DistributedDataParallel, which wraps the model of Keras.
        wrapped = None if isinstance(model, keras.Model) else getattr(model, "module", None)
        self.model = model if wrapped is None else wrapped
        self._model_was_set = True
        self._name(self.model)
        if self.pipeline.active and not is_keras_3() and getattr(model, "_is_compiled", False):
            # Keras 2 looks the function up before it reports that an evaluation begins.
            model.make_test_function()
            self._inspector.install(model, ModeKeys.EVAL)

    def register_model(self, model: Any) -> None:
        """Set the model of a custom loop."""
        self.registered = model
        self._name(model)

    def _name(self, model: Any) -> None:
        if self.pipeline.active:
            with self.pipeline.guarded:
                self.named.set_model(model)

    # ---- batches

    @property
    def in_batch(self) -> bool:
        """Whether Keras is computing a batch."""
        return self._inspector.running

    def set_mode(self, mode: ModeKeys, by_user: bool = False) -> None:
        """Set the mode of the steps to come.

        Args:
            mode: the mode.
            by_user: the user evaluates or predicts in a custom loop, where nothing begins a step:
                the next tensor that the user saves does.
        """
        self.pipeline.set_mode(mode)
        self._user_step_due = by_user and mode in (ModeKeys.EVAL, ModeKeys.PREDICT)

    def begin_user_step(self) -> None:
        if self._user_step_due:
            self._user_step_due = False
            self.pipeline.begin_step()

    def begin(self, mode: ModeKeys) -> None:
        """Begin a `fit`, `evaluate` or `predict`."""
        if mode is _TRAIN:
            self._fit_model = self.model
        if not self.pipeline.active:
            self.warn_once("this hook saves nothing: it was closed, or created in another process")
            return
        self.set_mode(mode)
        self._batch_open = False
        self.variables.model_may_have_changed()
        (self._called_by_user.add if self._model_was_set else self._called_by_user.discard)(mode)
        self._model_was_set = False
        self._inspector.install(self.model, mode)

    def end(self, mode: ModeKeys) -> None:
        """End a `fit`, `evaluate` or `predict`, and publish what was saved."""
        if mode is _TRAIN:
            self._fit_model = None
        if not self.pipeline.active:
            if mode is _TRAIN:
                self.model = None
            return
        self._cancel_open_batch()
        if mode in self._called_by_user or self._fit_model is None:
            # If the user called it in the middle of `fit`, the next batch installs them again.
            self._inspector.remove()
            if self.model is not None:
                self.pipeline.flush()
        if self._fit_model is not None:
            # A validation or a prediction, perhaps of another model, is over.
            self.set_mode(_TRAIN)
            if self.model is not self._fit_model:
                self.set_model(self._fit_model)
                self._model_was_set = False

    def begin_batch(self, mode: ModeKeys) -> None:
        """Begin a step."""
        pipeline = self.pipeline
        # Open already: the hook is twice among the callbacks.
        if not pipeline.active or self.model is None or self._batch_open:
            return
        self._batch_open = True
        self.set_mode(mode)
        if mode is _TRAIN:
            self._fit_model = self.model
            self.metrics.begin_training_step()
        self._inspector.install(self.model, mode)
        capture = pipeline.begin_step()
        if pipeline.run.ready and pipeline.run.writes:
            # Also after a failure: a model whose instrumented function must run at every step.
            plan = None if capture is None else capture.plan
            with pipeline.guarded:
                self._inspector.prepare(mode, plan, self.variables.optimizers)

    def end_batch(self, mode: ModeKeys, batch: int, logs: Any) -> None:
        """Save a step, and stop training if that was requested."""
        if self.pipeline.active and self.model is not None and self._batch_open:
            self._batch_open = False
            recorded = self._inspector.take()
            capture = self.pipeline.current
            if capture is not None and capture.plan is not None:
                with self.pipeline.guarded:
                    self._offer_recorded(recorded)
                    # The results of a prediction are not metrics.
                    reported = {} if mode is ModeKeys.PREDICT else dict(logs or {})
                    new = {name: value for name, value in reported.items() if name not in recorded}
                    self.metrics.offer_logs({"batch": batch, **new})
                    self.variables.offer(capture, self.model)
        if mode is _TRAIN:
            self.pipeline.stop_if_requested()

    def begin_epoch(self) -> None:
        """Take into account that the model may have been changed between two epochs."""
        self.variables.model_may_have_changed()

    def end_epoch(self, epoch: int, logs: Any) -> None:
        """Save the results of an epoch at its last step, whatever the save schedule."""
        if not self.pipeline.active or self.model is None:
            return
        self._cancel_open_batch()
        if self.pipeline.saving():
            self.set_mode(_TRAIN)
            with self.pipeline.guarded:
                self.metrics.save_epoch({"epoch": epoch, **(logs or {})})

    def _cancel_open_batch(self) -> None:
        """Undo a step that Keras began at the end of the data."""
        if self._batch_open:
            self._batch_open = False
            with self.pipeline.guarded:
                self.pipeline.cancel_step()

    def _offer_recorded(self, recorded: dict[str, tuple[Any, ...]]) -> None:
        current = self.pipeline.current
        assert current is not None
        for name, values in recorded.items():
            self.pipeline.offer(name, values[0])
            request = None if current.plan is None else current.plan.request(name)
            if request is None or not self._saves_all_workers:
                continue
            for replica, value in enumerate(values[1:], 1):
                capture = self.capture(name, value, request)
                if capture is not None:
                    current.add(ReplicaCapture(capture, replica))

    # ---- custom loops

    def wrap_tape(self, tape: Any) -> None:
        """Observe a tape: entering it begins a step."""
        if not self.pipeline.active:
            return
        # A `fit` that ended in an exception did not report its end.
        self._fit_model = None
        # It is unknown later, inside a function.
        self._strategy = tf.distribute.get_strategy()
        if self._saves_all_workers and local_replicas(self._strategy) > 1:
            self.warn_once("with a tape only the tensors of the first replica are saved")
        self.set_mode(_TRAIN)
        self.tapes.wrap(tape)

    def optimizer_variables(self) -> list[tuple[str, Any]]:
        """Return the variables of all optimizers with their names."""
        return self.variables.of_optimizers(self.model)

    def refreshed_plan(self) -> SavePlan:
        """Return the plan with the latest changes of collections, before a step begins."""
        if self.pipeline.collections.refresh(self.resolve):
            self.pipeline.invalidate()
        return self.pipeline.plan

    # ---- called by the pipeline

    def resolve(self, collections: CollectionManager) -> None:
        for collection in collections.get_collections().values():
            if isinstance(collection, Collection):
                collection.resolve(self._possible_names, self.named.layer)
        if self.named.model is not None:
            for each in self.pipeline.collections.of_rules:
                include_layers(each, self.named.names())
        layers = collections.get(CollectionKeys.LAYERS)
        if layers.tensor_names or set(layers.include_regex) - {LAYER_TENSORS}:
            # The user's regexes name layers; they may also match other tensors.
            if NOT_OF_A_LAYER not in layers.exclude_regex:
                layers.exclude(NOT_OF_A_LAYER)
        elif not layers.include_regex:
            layers.include(LAYER_TENSORS)

    def _possible_names(self, variable: Any) -> list[str]:
        """Return the names of a variable: as one of an optimizer, with a tape, and in `fit`."""
        name = self.tapes.name_of(variable)
        return [f"{name}:0", f"weights/{name}:0", *self.named.weight_names(variable)]

    def worker(self) -> Worker:
        return worker_of(self.model, self._strategy, self.pipeline.options)

    @property
    def _saves_all_workers(self) -> bool:
        return self.pipeline.options.include_workers == "all"

    def open_output(self, worker: str) -> Output | None:
        strategy = None if self.model is None else replicating_strategy(self.model)
        if strategy is None or not self._saves_all_workers or self.pipeline.options.dry_run:
            return super().open_output(worker)
        names = worker_names(strategy)
        if worker not in names:
            # With several processes each of them is one worker.
            return super().open_output(worker)
        return ReplicatedOutput([super(KerasAdapter, self).open_output(each) for each in names])

    def stop_training(self, request: StopRequest) -> None:
        if self._fit_model is not None:
            self._fit_model.stop_training = True
        else:
            super().stop_training(request)

    def detach(self) -> None:
        self._inspector.forget()
        self.tapes.forget()
        self.named.set_model(None)
        self.registered = None
        # During `fit` the model is still needed to stop it.
        if self._fit_model is None:
            self.model = None
