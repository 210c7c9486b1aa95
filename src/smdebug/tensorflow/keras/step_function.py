"""The instrumented twin of the function that a Keras model runs for every batch.

A model looks up `train_function` for every batch (`test_function`, `predict_function`). At a step
that saves tensors inside the step, an instrumented function runs there instead: Keras itself makes
it from the same step, with the tensors as additional results. It is traced once.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.backend import keras_backend, tf
from smdebug.tensorflow.keras.batch import RepeatableBatch
from smdebug.tensorflow.keras.layers import ModelNames
from smdebug.tensorflow.keras.optimizers import distinct_objects, optimizers_of
from smdebug.tensorflow.keras.recording import Recording, no_autograph, recorded, replaced
from smdebug.tensorflow.keras.replicas import replicating_strategy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Keys among the results of a step; they sort after all others.
_RECORDED, _RESULT = "~recorded", "~result"


class ModelFunction(NamedTuple):
    """The attributes of a Keras model for one mode.

    Attributes:
        function: the function for a batch.
        make: the method that makes it.
        step: the step inside it.
    """

    function: str
    make: str
    step: str


MODEL_FUNCTIONS = {
    ModeKeys.TRAIN: ModelFunction("train_function", "make_train_function", "train_step"),
    ModeKeys.EVAL: ModelFunction("test_function", "make_test_function", "test_step"),
    ModeKeys.PREDICT: ModelFunction("predict_function", "make_predict_function", "predict_step"),
}


class CaptureRequest(NamedTuple):
    """The tensors inside a step that an observer may save.

    Attributes:
        key: differs from that of another request.
        wanted: returns whether a tensor of this name is ever saved.
        optimizers: optimizers that the model does not hold.
        layers: whether inputs or outputs of layers may be among the tensors.
    """

    key: object
    wanted: Callable[[str], bool]
    optimizers: tuple[Any, ...]
    layers: bool


def is_from_tracing(model: Any, error: Exception) -> bool:
    """Return whether an exception was raised before anything was computed."""
    if keras_backend() != "tensorflow" or getattr(model, "run_eagerly", False):
        return False
    return not isinstance(error, StopIteration | tf.errors.OpError)


class StepFunction:
    """Runs a step of a model and records the tensors inside it.

    Args:
        model: the model.
        attributes: the attributes of the model for the mode.
        original: the model's own function.
        request: the tensors to record.

    Attributes:
        stateful: whether the step draws random numbers whose state belongs to the function. Then
            only one of the two functions may run, or training would not be the same.
        recorded: the tensors of the last call: for each name one of every replica.
        called: whether it was ever called.
        ran: whether the last call has computed anything.
        bypassed: whether the model's function turned out not to run the model's step.
        failure: why the instrumented function failed, where the model's own ran instead.
        exclusive: whether only this function can be traced: then it runs at every step.
    """

    def __init__(
        self, model: Any, attributes: ModelFunction, original: Any, request: CaptureRequest
    ) -> None:
        self.stateful = self.called = self.ran = self.bypassed = self.exclusive = False
        self.failure: Exception | None = None
        self.recorded: dict[str, tuple[Any, ...]] = {}
        self._model = model
        self._attributes = attributes
        self._original = original
        self._request = request
        self._step = getattr(model, attributes.step)
        self._instrumented: Any = None
        self._specs: list[Any] = []
        # Whether a step must not run twice; whether the model's own function has run.
        self._runs_once = self._original_ran = False
        # The variables of the step, and their values before it.
        self._variables: list[tuple[Any, Any]] = []
        self._values: list[tuple[Any, Any]] = []

    def __call__(self, *args: Any) -> Any:
        """Run one step and record the tensors inside it."""
        self.called, self.ran = True, False
        if not self._runs_once and not self.exclusive and self._changes_rounding():
            try:
                strategy = self._model.distribute_strategy
                batch = RepeatableBatch.take(args[0], strategy, self._specs)
            except (StopIteration, tf.errors.OutOfRangeError):
                # The model's own function handles the end of the data.
                self.called = self._instrumented is not None
                return self._original(*args)
            if batch is not None:
                return self._run_both(batch)
        result = self._run_instrumented(*args)
        self.ran = True
        return result

    def _changes_rounding(self) -> bool:
        """Return whether a step with more results would be computed differently.

        TensorFlow fuses layers where nothing reads the tensors between them, which rounds
        differently; XLA fuses all of a step.
        """
        if keras_backend() != "tensorflow" or self._model.run_eagerly:
            return False
        return self._request.layers or bool(self._model.jit_compile)

    def _run_both(self, batch: RepeatableBatch) -> Any:
        """Run the instrumented function, undo the step, and run the model's own function."""
        if self._instrumented is not None:
            self._save_variables()
        try:
            result = batch.apply(self._run_instrumented)
        except Exception as error:
            if not is_from_tracing(self._model, error):
                raise
            self.failure = error
        else:
            self.ran = True
            if self._runs_once:
                # Tracing has just shown that the step must not run again.
                return result
            self._restore_variables()
        return self._run_original(batch)

    def _run_original(self, batch: RepeatableBatch) -> Any:
        try:
            result = batch.apply(self._original)
        except Exception as error:
            failed = self.failure is not None or self._original_ran
            if failed or not is_from_tracing(self._model, error):
                raise
            # Without the hook it would have been traced first, and would have worked.
            self.exclusive = True
            return batch.apply(self._run_instrumented)
        self._original_ran = True
        return result

    def _save_variables(self) -> None:
        self._values = [
            (handle, tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype))
            for handle, dtype in self._variables
        ]

    def _restore_variables(self) -> None:
        for handle, value in self._values:
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        self._values = []

    def _run_instrumented(self, *args: Any) -> Any:
        with self._instrumentation():
            if self._instrumented is None:
                # Keras makes it from the step as it is now; the model keeps its own.
                name = self._attributes.function
                original = getattr(self._model, name)
                getattr(self._model, self._attributes.make)(force=True)
                self._instrumented = getattr(self._model, name)
                setattr(self._model, name, original)
            result = self._instrumented(*args)
        if not isinstance(result, dict) or _RECORDED not in result:
            # A custom function, which does not call the step.
            self.bypassed, self.recorded = True, {}
            return result
        result = dict(result)
        self.recorded = result.pop(_RECORDED)
        return result.get(_RESULT, result)

    @contextmanager
    def _instrumentation(self) -> Iterator[None]:
        optimizers = (*optimizers_of(self._model), *self._request.optimizers)
        with ExitStack() as stack:
            stack.enter_context(
                replaced(self._model, self._attributes.step, self._instrumented_step)
            )
            stack.enter_context(recorded(self._model, distinct_objects(optimizers)))
            strategy = replicating_strategy(self._model)
            if strategy is not None:
                stack.enter_context(replaced(strategy, "run", _run_with_replicas(strategy)))
            if keras_backend() == "torch":
                import torch

                # Nothing can be recorded inside a compiled function.
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            yield

    @no_autograph
    def _instrumented_step(self, data: Any) -> dict[str, Any]:
        recording = Recording(self._model)
        recording.record_batch(data)
        with recording.active():
            result = self._step(data)
        # Named only now: the step may have created variables.
        tensors = recording.tensors(ModelNames(self._model), self._request.wanted)
        if keras_backend() == "tensorflow":
            self._inspect(recording)
        if replicating_strategy(self._model) is None:
            tensors = {name: (tensor,) for name, tensor in tensors.items()}
        if isinstance(result, dict):
            return {**result, _RECORDED: tensors}
        return {_RESULT: result, _RECORDED: tensors}

    def _inspect(self, recording: Recording) -> None:
        """Find out, while a step is traced, how it can run."""
        self.stateful = self.stateful or recording.has_own_random_state()
        self._runs_once = self.stateful or recording.has_other_effects()
        self._variables = recording.variables()
        for name in ("_train_counter", "_test_counter", "_predict_counter"):
            # Keras 2 increments these in another function around the step.
            counter = getattr(self._model, name, None)
            if counter is not None:
                self._variables.append((counter.handle, counter.dtype))
        if self._request.layers or getattr(self._model, "jit_compile", False):
            # Nothing has been computed yet.
            with tf.init_scope():
                self._save_variables()


def _run_with_replicas(strategy: Any) -> Any:
    """Wrap `strategy.run`: Keras merges the results of replicas, but not the recorded tensors."""
    original = strategy.run

    def run(fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        result = dict(original(fn, args=args, kwargs=kwargs, options=options))
        result[_RECORDED] = {
            # Not a list: tf.data would stack it into one tensor.
            name: tuple(strategy.experimental_local_results(value))
            for name, value in result[_RECORDED].items()
        }
        return result

    return no_autograph(run)
