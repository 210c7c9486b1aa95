"""The hook for Keras: a callback of `fit`, `evaluate` and `predict`, and for tapes.

It has more methods than most because it is a callback, and because of what scripts for smdebug 1.0
call.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.config import checks
from smdebug.config.collection import CollectionKeys
from smdebug.exceptions import SMDebugTypeError
from smdebug.hook.capture import TakenArray
from smdebug.hook.plan import Want
from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.backend import flatten, is_keras_3, keras, keras_backend, tf
from smdebug.tensorflow.collection import Collection
from smdebug.tensorflow.functions import (
    KINDS,
    StandIn,
    StepFunction,
    can_look_inside,
    is_optimizer,
    put_in_place,
    replicas_of,
    steps_per_execution,
    take_away,
)
from smdebug.tensorflow.hook import TensorflowHook
from smdebug.tensorflow.layers import ModelNames, distinct, variable_name, weights_of
from smdebug.tensorflow.naming import (
    KERAS_COLLECTIONS,
    LAYER_TENSORS,
    NOT_OF_A_LAYER,
    gradient_name,
)
from smdebug.tensorflow.needs import include_layers
from smdebug.tensorflow.recording import as_it_is
from smdebug.tensorflow.replicas import OfReplica, ReplicatedOutput, worker_names, worker_of
from smdebug.tensorflow.tape import Tapes
from smdebug.tensorflow.tensors import value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.hook.base import Worker
    from smdebug.hook.capture import StepCapture
    from smdebug.hook.output import Output
    from smdebug.hook.plan import StepPlan
    from smdebug.storage.control import StopRequest

logger = logging.getLogger("smdebug.hook")

_METRIC = Want(raw=True, reductions=(), collections=(CollectionKeys.METRICS,))
_LOSS = Want(raw=True, reductions=(), collections=(CollectionKeys.LOSSES,))


class KerasHook(TensorflowHook, keras.callbacks.Callback):
    __doc__ = (TensorflowHook.__doc__ or "").replace(
        "Saves what happens in a training with TensorFlow; `KerasHook` and `SessionHook` are made.",
        "Saves what happens in a Keras model: a callback for `fit`, `evaluate` and `predict`.\n\n"
        "    Every batch is a step. The mode of a step is that of what runs: TRAIN, EVAL or "
        "PREDICT.",
    )

    default_collections = KERAS_COLLECTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        keras.callbacks.Callback.__init__(self)
        # What was found out about the model, and what it is for.
        self._names: ModelNames | None = None
        self._named: tuple[int, int] | None = None
        self._functions: dict[ModeKeys, tuple[object, StepFunction | None]] = {}
        self._places: dict[ModeKeys, tuple[Any, StandIn]] = {}
        self._running: StepFunction | None = None
        self._optimizers: tuple[Any, ...] = ()
        self._optimizer_variables: tuple[Any, ...] = ()
        self._in_fit = self._by_hand = False
        self._said: set[str] = set()
        # What the last training step has saved of what Keras reports.
        self._logged: set[str] = set()
        self._registered: Any = None
        super().__init__(*args, **kwargs)
        self._tapes = Tapes(self)

    # ---- registering

    def register_model(self, model: Any) -> None:
        """Says which model it is, in a loop of one's own; `fit` does it by itself.

        Args:
            model: a Keras model: its layers' inputs and outputs are saved too.

        Raises:
            SMDebugTypeError: it is no model.
        """
        if not hasattr(model, "weights") or not hasattr(model, "call"):
            raise SMDebugTypeError(
                f"model must be a Keras model, got {type(model).__name__}; pass the model that is "
                "trained"
            )
        self._registered = model
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
            self._functions.clear()
        else:
            self._say(
                f"wrap_optimizer: {type(optimizer).__name__} is no optimizer of Keras and stays as "
                "it is"
            )
        return optimizer

    @as_it_is
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

    def save_scalar(
        self,
        name: str,
        value: Any,
        sm_metric: bool = False,
        timestamp: float | None = None,
    ) -> None:
        """Saves a number; see `BaseHook.save_scalar`."""
        self._begin_by_hand()
        super().save_scalar(name, value, sm_metric, timestamp)

    def save_tensor(
        self, tensor_name: str, tensor_value: Any, collections_to_write: Any = "default"
    ) -> None:
        """Saves a tensor; see `BaseHook.save_tensor`."""
        self._begin_by_hand()
        super().save_tensor(tensor_name, tensor_value, collections_to_write)

    def _begin_by_hand(self) -> None:
        """Begins a step where nothing else does."""
        if self._by_hand:
            self._by_hand = False
            self._begin_step()

    @as_it_is
    def save_tape_logs(self, model_inputs: Any = None, outputs: Any = None) -> None:
        """Saves the inputs and the predictions of a model, in a loop of one's own.

        Args:
            model_inputs: what the model was given: saved as `inputs`.
            outputs: what it returned: saved as `predictions`.
        """
        self._begin_by_hand()
        self._tapes.save("inputs", model_inputs)
        self._tapes.save("predictions", outputs)

    def record_tensor_value(self, tensor_name: str, tensor_value: Any) -> None:
        """Saves a metric, or a loss, at the present step if its collection is saved at it.

        Args:
            tensor_name: its name; one that ends in `loss` is a loss.
            tensor_value: a tensor with a value.
        """
        checks.text("tensor_name", tensor_name)
        value = self._as_array(tensor_name, tensor_value)
        self._begin_by_hand()
        with self._entered():
            self._offer_metric(tensor_name, value)
        self._guard.raise_if_asked()

    @as_it_is
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
        self._collections_asked_for = True
        if not is_keras_3() and getattr(model, "_is_compiled", False) and not self._closed:
            # Keras 2 has looked the function up before an evaluation says that it begins.
            model.make_test_function()
            self._put_in_place(ModeKeys.EVAL)

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins a `fit`; Keras calls it."""
        self._in_fit = True
        self._begin(ModeKeys.TRAIN)

    def on_test_begin(self, logs: Any = None) -> None:
        """Begins an `evaluate`; Keras calls it."""
        self._begin(ModeKeys.EVAL)

    def on_predict_begin(self, logs: Any = None) -> None:
        """Begins a `predict`; Keras calls it."""
        self._begin(ModeKeys.PREDICT)

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
        if not self._takes_part() or not self._saves():
            return
        self._run_in(ModeKeys.TRAIN)
        with self._entered():
            self._save_epoch({"epoch": epoch, **(logs or {})})

    def on_test_end(self, logs: Any = None) -> None:
        """Ends an `evaluate`; Keras calls it."""
        self._end()

    def on_predict_end(self, logs: Any = None) -> None:
        """Ends a `predict`; Keras calls it."""
        self._end()

    def on_train_end(self, logs: Any = None) -> None:
        """Ends a `fit` and publishes what was saved; Keras calls it. More may follow."""
        self._in_fit = False
        self._end()
        if self._closed:
            self._forget_model()

    # ---- a step of Keras

    def _takes_part(self) -> bool:
        return not self._closed and not self._forked and self.model is not None

    def _begin(self, mode: ModeKeys) -> None:
        if self._closed or self._forked:
            self._say("this hook saves nothing: it was closed, or made in another process")
            return
        self._running = None
        self._run_in(mode)
        self._put_in_place(mode)

    def _end(self) -> None:
        self._running = None
        if self._in_fit:
            # A validation or a prediction in the middle of it.
            self._run_in(ModeKeys.TRAIN)
            return
        self._take_away()
        if self._takes_part():
            self.flush()

    def _run_in(self, mode: ModeKeys) -> None:
        self._steps.set_mode(mode)
        self._by_hand = False

    def _put_in_place(self, mode: ModeKeys) -> None:
        """Makes room for another function in the place of the model's."""
        stand_in = put_in_place(self.model, KINDS[mode])
        if stand_in is not None:
            self._places[mode] = self.model, stand_in

    def _take_away(self) -> None:
        """Gives the model its own functions back."""
        for mode, (model, stand_in) in self._places.items():
            take_away(model, KINDS[mode], stand_in)
        self._places.clear()

    def _begin_batch(self, mode: ModeKeys) -> None:
        if not self._takes_part():
            return
        self._running = None
        self._run_in(mode)
        if mode is ModeKeys.TRAIN:
            self._logged.clear()
        capture = self._begin_step()
        if self._ready and self._writes:
            # Also where saving has failed: a step that must go on in the other function does.
            with self._entered():
                self._prepare(mode, capture)

    def _end_batch(self, batch: int, logs: Any) -> None:
        function, self._running = self._running, None
        if not self._takes_part():
            return
        capture = self._capture
        if capture is None or capture.plan is None:
            return
        with self._entered():
            if function is not None:
                self._offer_inside(function)
            self._offer_logs(batch, logs)
            self._offer_variables(capture)

    # ---- what is inside of a step

    def _prepare(self, mode: ModeKeys, capture: StepCapture | None) -> None:
        """Has another function run in the place of the model's own, if this step needs it."""
        if mode not in self._places:
            return
        stand_in = self._places[mode][1]
        function = self._function(mode, stand_in.own)
        if function is None:
            return
        plan = None if capture is None else capture.plan
        # The first step finds out whether the two functions may take turns.
        if function.called and not function.stateful and not self._needs_inside(plan, mode):
            return
        self._running = function
        stand_in.next = self._run

    def _run(self, *args: Any) -> Any:
        """Runs a step; Keras calls it in place of the model's own function."""
        function = self._running
        assert function is not None
        try:
            result = function(*args)
        except Exception as error:
            if function.ran or not _is_from_tracing(self.model, error):
                raise
            why = f"its step could not be traced a second time: {type(error).__name__}: {error}"
            self._give_up(function, why)
            return function.own(*args)
        if function.hidden:
            self._give_up(function, "its function does not run its step")
        return result

    def _give_up(self, function: StepFunction, why: str) -> None:
        """Leaves a model alone whose step cannot be looked into."""
        self._running = None
        for mode, (key, known) in self._functions.items():
            if known is function:
                self._functions[mode] = key, None
        logger.warning("the inside of %s is not saved: %s", type(self.model).__name__, why)

    def _function(self, mode: ModeKeys, own: Any) -> StepFunction | None:
        """What runs in place of the model's function in this mode; None if it is never needed."""
        # Compiling a model, or asking for other tensors, makes it another function.
        key = (own, self._plan)
        known = self._functions.get(mode)
        if known is None or known[0] != key:
            function = None
            if self._ever_needs_inside(mode):
                function = StepFunction(
                    self.model, KINDS[mode], own, self._wanted_in(mode), self._optimizers
                )
            known = self._functions[mode] = key, function
        return known[1]

    def _wanted_in(self, mode: ModeKeys) -> Any:
        plan = self._plan
        return lambda name: plan.ever(mode, name)

    def _ever_needs_inside(self, mode: ModeKeys) -> bool:
        wanted = any(self._plan.ever(mode, name) for name in self._inside_names(mode))
        if not wanted:
            return False
        if keras_backend() == "jax":
            self._say(
                "on the JAX backend of Keras the inside of a step cannot be seen: weights, "
                "optimizer variables, losses and metrics are saved; gradients, layers, inputs, "
                "labels and predictions are not"
            )
            return False
        if not can_look_inside(self.model):
            self._say(
                f"under {type(self.model.distribute_strategy).__name__} the inside of a step "
                "cannot be seen: weights, optimizer variables, losses and metrics are saved; "
                "gradients, layers, inputs, labels and predictions are not"
            )
            return False
        if mode is ModeKeys.PREDICT and steps_per_execution(self.model) > 1:
            self._say(
                "predictions with steps_per_execution > 1 are not looked into: layers, inputs and "
                "predictions are saved with steps_per_execution=1"
            )
            return False
        return True

    def _needs_inside(self, plan: StepPlan | None, mode: ModeKeys) -> bool:
        if plan is None:
            return False
        known = plan.memory.get("inside")
        if known is None:
            known = any(plan.interesting(name) for name in self._inside_names(mode))
            plan.memory["inside"] = known
        return bool(known)

    def _inside_names(self, mode: ModeKeys) -> Iterator[str]:
        """Names that what is inside of a step may have."""
        names = self._model_names()
        bases = ["inputs", "labels", "predictions"]
        layers = names.layers.values() if self.model.built else [*names.layers.values(), "layer"]
        bases += [f"{layer}/{kind}" for layer in layers for kind in ("inputs", "outputs")]
        for base in bases:
            yield base
            yield from (f"{base}_{place}" for place in range(10))
        if mode is ModeKeys.TRAIN:
            yield from (weight.gradient for weight in names.weights)
            if not self.model.built:
                yield gradient_name("layer/kernel")

    def _offer_inside(self, function: StepFunction) -> None:
        inside, function.inside = function.inside, {}
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
        for name, value in _numbers(logs):
            if name in self._logged:
                # The last batch said the same.
                continue
            want = _METRIC if self._name_metric(name) else _LOSS
            self._remember_name(name, want.collections)
            self._put(TakenArray(name, value, want))

    def _offer_variables(self, capture: StepCapture) -> None:
        plan = capture.plan
        assert plan is not None
        wanted = self._wanted_variables(plan)
        if wanted and hasattr(self.model, "jax_state_sync"):
            # In the middle of `fit` the variables of JAX are elsewhere.
            self.model.jax_state_sync()
        for name, variable in wanted:
            self._offer(name, value_of(variable))

    def _wanted_variables(self, plan: StepPlan) -> list[tuple[str, Any]]:
        """The variables that are saved at such steps; found out once for a model."""
        names = self._model_names()
        optimizer = self._named_optimizer_variables() if plan.mode is ModeKeys.TRAIN else []
        key = names, len(optimizer)
        known = plan.memory.get("variables")
        if known is None or known[0] != key:  # type: ignore[index]
            every = [*((each.name, each.variable) for each in names.weights), *optimizer]
            found = [(name, variable) for name, variable in every if plan.interesting(name)]
            known = plan.memory["variables"] = key, found
        return known[1]  # type: ignore[index, no-any-return]

    def _named_optimizer_variables(self) -> list[tuple[str, Any]]:
        """The variables of all optimizers, which are no weights."""
        optimizer = getattr(self.model, "optimizer", None)
        found = list(self._optimizer_variables)
        for each in (optimizer, *self._optimizers):
            variables = getattr(each, "variables", ())
            found += variables() if callable(variables) else variables
        names = distinct({id(variable): variable_name(variable) for variable in found})
        variables = {id(variable): variable for variable in found}
        named = [(f"{name}:0", variables[key]) for key, name in names.items()]
        for name, _ in named:
            self._put_name(CollectionKeys.OPTIMIZER_VARIABLES, name)
        return named

    def _interesting(self, name: str) -> bool:
        """Whether a tensor is of interest at the present step."""
        plan = None if self._capture is None else self._capture.plan
        return plan is not None and plan.interesting(name)

    def _short_name(self, variable: Any) -> str | None:
        """The name of a variable of the model, if there is a model."""
        if self._registered is None and self.model is None:
            return None
        return self._model_names().variable(variable)

    def _model_names(self) -> ModelNames:
        """The names in the model; found again when it has got more variables."""
        model = self._registered if self.model is None else self.model
        key = id(model), len(weights_of(model))
        if self._names is None or self._named != key:
            self._names, self._named = ModelNames(model), key
            # Names that collections and rules are waiting for may be there now.
            self._collections_asked_for = True
        return self._names

    # ---- what BaseHook asks

    def _resolve_collections(self) -> None:
        for collection in self.collection_manager.get_collections().values():
            if isinstance(collection, Collection):
                collection.resolve(self._names_of_variable)
        if self.model is not None or self._registered is not None:
            for fed in self._fed:
                include_layers(fed, self._model_names())
        layers = self.collection_manager.get(CollectionKeys.LAYERS)
        if not layers.include_regex and not layers.tensor_names:
            layers.include(LAYER_TENSORS)
        elif NOT_OF_A_LAYER not in layers.exclude_regex:
            # Regexes say which layers, not which tensors.
            layers.exclude(NOT_OF_A_LAYER)

    def _names_of_variable(self, variable: Any) -> list[str]:
        """What a variable may be called: in `fit`, with a tape, as one of an optimizer."""
        names = [f"{variable_name(variable)}:0", f"weights/{variable_name(variable)}:0"]
        if self.model is not None or self._registered is not None:
            known = self._model_names()
            short = known.variable(variable)
            if short is not None:
                names.append(f"weights/{short}:0")
                names += [each.name for each in known.weights if each.variable is variable]
        return names

    def _worker(self) -> Worker:
        return worker_of(self.model or self._registered, self._options)

    def _open_output(self, worker: str) -> Output | None:
        strategy = None if self.model is None else replicas_of(self.model)
        if strategy is None or not self.save_all_workers or self.dry_run:
            return super()._open_output(worker)
        make = super()._open_output
        return ReplicatedOutput([make(name) for name in worker_names(strategy)])

    def _stop_training(self, request: StopRequest) -> None:
        if self._in_fit and self.model is not None:
            self.model.stop_training = True
        else:
            super()._stop_training(request)

    def _detach(self) -> None:
        self._running = None
        self._take_away()
        self._functions.clear()
        self._names = self._registered = None
        if not self._in_fit:
            self._forget_model()

    def _forget_model(self) -> None:
        # It may be large, and the hook may live as long as the process.
        keras.callbacks.Callback.set_model(self, None)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        keras.callbacks.Callback.__init__(self)
        self._places, self._said = {}, set()
        self._running, self._in_fit, self._by_hand = None, False, False

    def _say(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            logger.warning(message)


TornasoleKerasHook = KerasHook


def _numbers(logs: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """What Keras reports, as arrays of one number; what is no number is left out."""
    for name, value in logs.items():
        try:
            array = np.array(value, np.float64 if not isinstance(value, int) else None)
        except (TypeError, ValueError):
            continue
        if array.size == 1:
            yield name, array.reshape(1)


def _is_from_tracing(model: Any, error: Exception) -> bool:
    """Whether a failure came before anything was computed."""
    if keras_backend() != "tensorflow" or getattr(model, "run_eagerly", False):
        return False
    return not isinstance(error, StopIteration | tf.errors.OpError)
