"""The hook for Keras: a callback of `fit`, `evaluate` and `predict`, and for tapes.

It has more methods than most because it is a callback, and because of what scripts for smdebug 1.0
call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import validation
from smdebug.config.collection import CollectionKeys
from smdebug.exceptions import SMDebugTypeError
from smdebug.hook.capture import ArrayCapture
from smdebug.hook.plan import SaveRequest
from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.backend import flatten, is_keras_3, keras, tf
from smdebug.tensorflow.collection import Collection
from smdebug.tensorflow.functions import is_optimizer, optimizers_of, replicas_of
from smdebug.tensorflow.hook import TENSORFLOW_HOOK, TensorflowHook
from smdebug.tensorflow.layers import ModelNames, distinct, variable_name, weights_of
from smdebug.tensorflow.naming import (
    FROZEN_PARAMETERS,
    KERAS_COLLECTIONS,
    LAYER_TENSORS,
    NOT_OF_A_LAYER,
)
from smdebug.tensorflow.recording import no_autograph
from smdebug.tensorflow.replicas import (
    OfReplica,
    ReplicatedOutput,
    local_replicas,
    worker_names,
    worker_of,
)
from smdebug.tensorflow.rule_layers import include_layers
from smdebug.tensorflow.step_inspector import StepInspector
from smdebug.tensorflow.tape import Tapes
from smdebug.tensorflow.tensors import to_array, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.hook.capture import StepCapture
    from smdebug.hook.output import Output
    from smdebug.hook.plan import StepPlan
    from smdebug.hook.worker import Worker
    from smdebug.storage.stop_requests import StopRequest

_METRIC = SaveRequest(raw=True, reductions=(), collections=(CollectionKeys.METRICS,))
_LOSS = SaveRequest(raw=True, reductions=(), collections=(CollectionKeys.LOSSES,))


class KerasHook(TensorflowHook, keras.callbacks.Callback):
    __doc__ = (TensorflowHook.__doc__ or "").replace(
        TENSORFLOW_HOOK,
        "Saves what happens in a Keras model: a callback for `fit`, `evaluate` and `predict`.\n\n"
        "    Every batch is a step. The mode of a step is that of what runs: TRAIN, EVAL or "
        "PREDICT.",
    )

    default_collections = KERAS_COLLECTIONS

    def _set_up(self) -> None:
        keras.callbacks.Callback.__init__(self)
        # What was found out about the model, and what it is for.
        self._names: ModelNames | None = None
        self._named: tuple[int, list[int]] | None = None
        self._inside = StepInspector(self._say)
        self._tapes = Tapes(self)
        self._optimizers: tuple[Any, ...] = ()
        self._optimizer_variables: tuple[Any, ...] = ()
        # Grows when the variables of the model may be others.
        self._generation = 0
        self._in_fit = self._own_run = self._batch_open = self._by_hand = False
        self._own_runs: set[ModeKeys] = set()
        self._fitted: Any = None
        self._frozen: tuple[str, ...] = ()
        # What the last training step has saved of what Keras reports.
        self._logged: set[str] = set()
        # The model of tapes, and the one that names are of: whichever was told last.
        self._registered: Any = None
        self._strategy: Any = None
        self._looked_at: Any = None

    # ---- registering

    def register_model(self, model: Any) -> None:
        """Says which model it is, in a loop of one's own; `fit` does it by itself.

        Args:
            model: a Keras model: its layers' inputs and outputs are saved too.

        Raises:
            SMDebugTypeError: it is no model.
        """
        if not isinstance(model, keras.Model):
            raise SMDebugTypeError(
                f"model must be a Keras model, got {type(model).__name__}; pass the model that is "
                "trained"
            )
        self._registered = self._looked_at = model
        self._collections_asked_for = True

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Has the gradients that an optimizer is given, and its variables, saved.

        In `fit` the optimizer that the model was compiled with is known without this.

        Args:
            optimizer: an optimizer of Keras.

        Returns:
            The same optimizer.
        """
        if is_optimizer(optimizer):
            self._optimizers += (optimizer,)
            self._generation += 1
        else:
            self._say(
                f"wrap_optimizer: {type(optimizer).__name__} is no optimizer of Keras and stays as "
                "it is"
            )
        return optimizer

    @no_autograph
    def wrap_tape(self, tape: Any) -> Any:
        """Has what a tape computes saved: losses, gradients and the variables they are of.

        Entering the tape begins a step of the mode TRAIN.

        Args:
            tape: a `tf.GradientTape`, inside or outside of a `tf.function`.

        Returns:
            The same tape.

        Example:
            >>> with hook.wrap_tape(tf.GradientTape()) as tape:  # doctest: +SKIP
            ...     loss = loss_function(labels, model(images))
            >>> gradients = tape.gradient(loss, model.trainable_variables)  # doctest: +SKIP
        """
        if tf is None or not isinstance(tape, tf.GradientTape):
            self._say(f"wrap_tape: {type(tape).__name__} is no tf.GradientTape and stays as it is")
            return tape
        # A `fit` that ended in an exception has not said so.
        self._in_fit = False
        # What runs later, inside of a function, does not know it.
        self._strategy = tf.distribute.get_strategy()
        if self.save_all_workers and local_replicas(self._strategy) > 1:
            self._say("with a tape only what the first replica computes is saved")
        self.set_mode(ModeKeys.TRAIN)
        return self._tapes.wrap(tape)

    # ---- saving by hand

    def set_mode(self, mode: ModeKeys) -> None:
        """Sets the mode of the steps to come; `fit`, `evaluate` and `predict` do it themselves.

        In a loop of one's own an evaluation has no tape that would begin a step: what is saved by
        hand after `set_mode(modes.EVAL)`, or PREDICT, is one step of that mode.
        """
        super().set_mode(mode)
        self._by_hand = mode in (ModeKeys.EVAL, ModeKeys.PREDICT)

    def _begin_user_step(self) -> None:
        if self._by_hand:
            self._by_hand = False
            self._begin_step()

    @no_autograph
    def save_tape_logs(self, model_inputs: Any = None, outputs: Any = None) -> None:
        """Saves the inputs and the predictions of a model, in a loop of one's own.

        Args:
            model_inputs: what the model was given: saved as `inputs`.
            outputs: what it returned: saved as `predictions`.
        """
        self._tapes.save("inputs", model_inputs)
        self._tapes.save("predictions", outputs)

    def record_tensor_value(self, tensor_name: str, tensor_value: Any) -> None:
        """Saves a metric, or a loss, at the present step if its collection is saved at it.

        Args:
            tensor_name: its name; one that ends in `loss` is a loss.
            tensor_value: a tensor with a value.
        """
        validation.text("tensor_name", tensor_name)
        value = self._as_array(tensor_name, tensor_value)
        self._begin_user_step()
        with self._entered():
            self._offer_metric(tensor_name, value)
        self._guard.raise_pending()

    @no_autograph
    def set_gradients(self, gradients: Any = None, gradients_and_variables: Any = None) -> None:
        """Saves gradients at the present step, where no tape and no optimizer is wrapped.

        Args:
            gradients: gradients of the trainable variables of the registered model, in order.
            gradients_and_variables: pairs of a gradient and its variable.
        """
        pairs = list(gradients_and_variables or ())
        if gradients is not None:
            model = self._registered or self.model
            if model is None:
                raise SMDebugTypeError(
                    "gradients must come with their variables where no model is registered; pass "
                    "gradients_and_variables, or call register_model first"
                )
            pairs += list(zip(gradients, model.trainable_variables, strict=True))
        self._tapes.save_gradients(pairs)

    def set_optimizer_variables(self, optimizer_variables: Any) -> None:
        """Says which variables are the optimizer's, in a loop of one's own.

        Args:
            optimizer_variables: variables, or lists of them.
        """
        self._optimizer_variables = tuple(flatten(optimizer_variables))
        self._generation += 1

    def should_save_layer(self, layer_name: str) -> bool:
        """Whether inputs or outputs of a layer are saved at the present step."""
        return any(
            self.should_save_tensor_or_collection(f"{layer_name}/{kind}", "")
            for kind in ("inputs", "outputs")
        )

    # ---- what Keras calls

    def set_model(self, model: Any) -> None:
        """Says which model it is; Keras calls it."""
        keras.callbacks.Callback.set_model(self, model)
        self._own_run = True
        self._looked_at = model
        self._collections_asked_for = True
        if not is_keras_3() and getattr(model, "_is_compiled", False) and not self._closed:
            # Keras 2 has looked the function up before an evaluation says that it begins.
            model.make_test_function()
            self._inside.put_in_place(model, ModeKeys.EVAL)

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins a `fit`; Keras calls it."""
        self._in_fit, self._fitted = True, self.model
        self._begin(ModeKeys.TRAIN)

    def on_test_begin(self, logs: Any = None) -> None:
        """Begins an `evaluate`; Keras calls it."""
        self._begin(ModeKeys.EVAL)

    def on_predict_begin(self, logs: Any = None) -> None:
        """Begins a `predict`; Keras calls it."""
        self._begin(ModeKeys.PREDICT)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begins an epoch, before which a model may have been changed; Keras calls it."""
        self._generation += 1

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begins a step; Keras calls it."""
        self._begin_batch(ModeKeys.TRAIN)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begins a step; Keras calls it."""
        self._begin_batch(ModeKeys.EVAL)

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begins a step; Keras calls it."""
        self._begin_batch(ModeKeys.PREDICT)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Saves a step; Keras calls it."""
        self._end_batch(batch, logs)
        self._stop_if_asked()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Saves a step; Keras calls it."""
        self._end_batch(batch, logs)

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """Saves a step; Keras calls it."""
        # What a prediction returns are no metrics.
        self._end_batch(batch, None)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves what an epoch came to, at its last step, whatever the schedule; Keras calls it."""
        if not self._takes_part():
            return
        self._take_back_open_batch()
        if not self._saves():
            return
        self._run_in(ModeKeys.TRAIN)
        with self._entered():
            self._save_epoch({"epoch": epoch, **(logs or {})})

    def on_test_end(self, logs: Any = None) -> None:
        """Ends an `evaluate`; Keras calls it."""
        self._end(ModeKeys.EVAL)

    def on_predict_end(self, logs: Any = None) -> None:
        """Ends a `predict`; Keras calls it."""
        self._end(ModeKeys.PREDICT)

    def on_train_end(self, logs: Any = None) -> None:
        """Ends a `fit` and publishes what was saved; Keras calls it. More may follow."""
        self._in_fit = False
        self._end(ModeKeys.TRAIN)
        if self._closed:
            self._forget_model()

    # ---- a step of Keras

    def _takes_part(self) -> bool:
        return not self._closed and not self._forked and self.model is not None

    def _begin(self, mode: ModeKeys) -> None:
        if self._closed or self._forked:
            self._say("this hook saves nothing: it was closed, or made in another process")
            return
        self._run_in(mode)
        self._batch_open = False
        self._generation += 1
        # A run of its own has said which model it is of; a validation in `fit` has not.
        (self._own_runs.add if self._own_run else self._own_runs.discard)(mode)
        self._own_run = False
        self._inside.put_in_place(self.model, mode)

    def _end(self, mode: ModeKeys) -> None:
        if self._closed or self._forked:
            return
        self._take_back_open_batch()
        if mode in self._own_runs or not self._in_fit:
            # Where it was in the middle of `fit`, the next batch puts them in place again.
            self._inside.take_away()
            if self._takes_part():
                self.flush()
        if self._in_fit:
            # A validation or a prediction, perhaps of another model.
            self._run_in(ModeKeys.TRAIN)
            if self.model is not self._fitted:
                self.set_model(self._fitted)
                self._own_run = False

    def _take_back_open_batch(self) -> None:
        """Takes back a step that Keras began and did not make: there was no more data."""
        if self._batch_open:
            self._batch_open = False
            with self._entered():
                self._cancel_step()

    def _run_in(self, mode: ModeKeys) -> None:
        self._steps.set_mode(mode)
        self._by_hand = False

    def _begin_batch(self, mode: ModeKeys) -> None:
        if not self._takes_part() or self._batch_open:
            # Open already: the hook is twice among the callbacks.
            return
        self._batch_open = True
        self._run_in(mode)
        if mode is ModeKeys.TRAIN:
            self._in_fit, self._fitted = True, self.model
            self._logged.clear()
        self._inside.put_in_place(self.model, mode)
        capture = self._begin_step()
        if self._ready and self._writes:
            # Also where saving has failed: a step that must go on in the other function does.
            step = None if capture is None else capture.plan
            with self._entered():
                self._inside.prepare(mode, self._plan, step, self._model_names, self._optimizers)

    def _end_batch(self, batch: int, logs: Any) -> None:
        if not self._takes_part() or not self._batch_open:
            return
        self._batch_open = False
        inside = self._inside.seen()
        capture = self._capture
        if capture is None or capture.plan is None:
            return
        with self._entered():
            self._offer_inside(inside)
            self._offer_logs(batch, {k: v for k, v in (logs or {}).items() if k not in inside})
            self._offer_variables(capture)

    def _offer_inside(self, inside: dict[str, tuple[Any, ...]]) -> None:
        for name, values in inside.items():
            self._offer(name, values[0])
            if self.save_all_workers:
                self._offer_replicas(name, values[1:])

    def _offer_replicas(self, name: str, values: tuple[Any, ...]) -> None:
        """Takes what other replicas of the model have under the same name."""
        capture = self._capture
        want = None if capture is None or capture.plan is None else capture.plan.want(name)
        if capture is None or want is None:
            return
        for replica, value in enumerate(values, 1):
            taken = self._take(name, value, want)
            if taken is not None:
                capture.add(OfReplica(taken, replica))

    # ---- metrics and variables

    def _offer_logs(self, batch: int, logs: Any) -> None:
        for name, value in _numbers({"batch": batch, **(logs or {})}):
            self._offer_metric(name, value)

    def _offer_metric(self, name: str, value: Any) -> None:
        self._name_metric(name)
        capture = self._capture
        if capture is not None and capture.plan is not None:
            self._offer(name, value)
            if capture.step.mode is ModeKeys.TRAIN and capture.plan.want(name) is not None:
                self._logged.add(name)

    def _name_metric(self, name: str) -> bool:
        """Makes a number that Keras reports one of the metrics, if it is no loss."""
        losses = self._plan.collections.get(CollectionKeys.LOSSES)
        if losses is not None and losses.matches(name):
            return False
        self._put_name(CollectionKeys.METRICS, name)
        return True

    def _save_epoch(self, logs: dict[str, Any]) -> None:
        taken = []
        for name, value in _numbers(logs):
            if name in self._logged:
                # The last batch said the same.
                continue
            want = _METRIC if self._name_metric(name) else _LOSS
            self._remember_name(name, want.collections)
            taken.append(ArrayCapture(name, value, want))
            self._logged.add(name)
        if taken:
            # At once: in format v1 a step that is saved again is written anew.
            self._put(*taken)

    def _offer_variables(self, capture: StepCapture) -> None:
        plan = capture.plan
        assert plan is not None
        wanted = self._wanted_variables(plan)
        if wanted and hasattr(self.model, "jax_state_sync"):
            # In the middle of `fit` the variables of JAX are elsewhere.
            self.model.jax_state_sync()
        for name, variable in wanted:
            self._offer(name, value_of(variable))

    def _note_frozen(self) -> None:
        """Tells rules which weights are not trained, on purpose."""
        trained = {id(each) for each in self.model.trainable_weights}
        names = tuple(
            each.name for each in self._model_names().weights if id(each.variable) not in trained
        )
        if names != self._frozen:
            self._frozen = names
            for name in names:
                self._remember_name(name, (FROZEN_PARAMETERS,))
                self.collection_manager.get(FROZEN_PARAMETERS).add_tensor_name(name)
            # Nothing else is asked for: the plan stays.
            self._planned = self.collection_manager.to_json()

    def _wanted_variables(self, plan: StepPlan) -> list[tuple[str, Any]]:
        """The variables that are saved at such steps; found out once in a run or an epoch."""
        known = plan.memory.get("variables")
        if known is None or known[0] != self._generation:  # type: ignore[index]
            every = [(each.name, each.variable) for each in self._model_names().weights]
            if plan.mode is ModeKeys.TRAIN:
                self._note_frozen()
                every += self._named_optimizer_variables()
            found = [(name, variable) for name, variable in every if plan.interesting(name)]
            known = plan.memory["variables"] = self._generation, found
        return known[1]  # type: ignore[index, no-any-return]

    def _named_optimizer_variables(self) -> list[tuple[str, Any]]:
        """The variables of all optimizers, which are no weights."""
        of_model = [] if self.model is None else optimizers_of(self.model)
        found = list(self._optimizer_variables)
        for each in (*of_model, *self._optimizers):
            variables = getattr(each, "variables", ())
            found += variables() if callable(variables) else variables
        names = distinct({id(variable): variable_name(variable) for variable in found})
        variables = {id(variable): variable for variable in found}
        named = [(f"{name}:0", variables[key]) for key, name in names.items()]
        for name, _ in named:
            self._put_name(CollectionKeys.OPTIMIZER_VARIABLES, name)
            # Of a layer called `weights` it may look like a weight.
            for weights in (CollectionKeys.WEIGHTS, CollectionKeys.BIASES):
                self._keep_out(weights, name)
        return named

    def _interesting(self, name: str) -> bool:
        """Whether a tensor is of interest at the present step."""
        plan = None if self._capture is None else self._capture.plan
        return plan is not None and plan.interesting(name)

    def _short_name(self, variable: Any) -> str | None:
        """The name of a variable of the model, if there is a model."""
        if self._looked_at is None:
            return None
        return self._model_names().variable(variable)

    def _model_names(self) -> ModelNames:
        """The names in the model; found again when it has got more variables."""
        model = self._looked_at
        key = id(model), [id(variable) for variable in weights_of(model)]
        if self._names is None or self._named != key:
            self._names, self._named = ModelNames(model), key
            # Names that collections and rules are waiting for may be there now.
            self._collections_asked_for = True
        return self._names

    # ---- what BaseHook asks

    def _resolve_collections(self) -> None:
        for collection in self.collection_manager.get_collections().values():
            if isinstance(collection, Collection):
                collection.resolve(self._names_of_variable, self._name_of_layer)
        if self._looked_at is not None:
            for fed in self._fed:
                include_layers(fed, self._model_names())
        layers = self.collection_manager.get(CollectionKeys.LAYERS)
        if layers.tensor_names or set(layers.include_regex) - {LAYER_TENSORS}:
            # Regexes say which layers, not which tensors.
            if NOT_OF_A_LAYER not in layers.exclude_regex:
                layers.exclude(NOT_OF_A_LAYER)
        elif not layers.include_regex:
            layers.include(LAYER_TENSORS)

    def _name_of_layer(self, layer: Any) -> str:
        known = None if self._looked_at is None else self._model_names().layer(layer)
        return str(layer.name) if known is None else known

    def _names_of_variable(self, variable: Any) -> list[str]:
        """What a variable may be called: in `fit`, with a tape, as one of an optimizer."""
        tape = self._tapes.name_of(variable)
        names = [f"{tape}:0", f"weights/{tape}:0"]
        if self._looked_at is not None:
            known = self._model_names()
            names += [each.name for each in known.weights if each.variable is variable]
        return names

    def _worker(self) -> Worker:
        return worker_of(self.model, self._strategy, self._options)

    def _open_output(self, worker: str) -> Output | None:
        strategy = None if self.model is None else replicas_of(self.model)
        make = super()._open_output
        if strategy is None or not self.save_all_workers or self.dry_run:
            return make(worker)
        names = worker_names(strategy)
        # Of several processes each is one worker.
        return ReplicatedOutput([make(name) for name in names]) if worker in names else make(worker)

    def _stop_training(self, request: StopRequest) -> None:
        if self._in_fit and self.model is not None:
            self.model.stop_training = True
        else:
            super()._stop_training(request)

    def _detach(self) -> None:
        self._inside.forget()
        self._tapes.forget()
        self._names = self._registered = self._looked_at = None
        if not self._in_fit:
            self._forget_model()

    def _forget_model(self) -> None:
        # It may be large, and the hook may live as long as the process.
        keras.callbacks.Callback.set_model(self, None)
        self._fitted = None


TornasoleKerasHook = KerasHook


def _numbers(logs: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """What Keras reports, as arrays of one number; what is no number is left out."""
    for name, value in logs.items():
        if value is None:
            continue
        try:
            array = to_array(value)
        except (TypeError, ValueError):
            continue
        if array.size == 1 and array.dtype.kind in "biuf":
            yield name, array.reshape(1).astype(np.int64 if isinstance(value, int) else np.float64)
