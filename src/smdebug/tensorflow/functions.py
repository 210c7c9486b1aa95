"""The function that a Keras model runs for every batch, and one beside it that tells more.

A model looks up `train_function` for every batch (`test_function`, `predict_function`): at a step
that saves what is inside, the hook puts another function there, which Keras itself has made of the
same step with additional results. It is traced once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.backend import keras, keras_backend, tf
from smdebug.tensorflow.layers import ModelNames
from smdebug.tensorflow.recording import Recording, no_autograph, replaced, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Among the results of a step; sorted behind all others.
_INSIDE, _RESULT = "~inside", "~result"


class Kind(NamedTuple):
    """What a model calls the function of a mode, what makes it, and the step in it."""

    function: str
    make: str
    step: str


KINDS = {
    ModeKeys.TRAIN: Kind("train_function", "make_train_function", "train_step"),
    ModeKeys.EVAL: Kind("test_function", "make_test_function", "test_step"),
    ModeKeys.PREDICT: Kind("predict_function", "make_predict_function", "predict_step"),
}


class CaptureRequest(NamedTuple):
    """What somebody wants to see.

    Attributes:
        about: changes when something else is wanted.
        wanted: says by name what is ever saved.
        optimizers: those that the model does not hold itself.
        layers: whether what layers take and return may be wanted.
    """

    about: object
    wanted: Callable[[str], bool]
    optimizers: tuple[Any, ...]
    layers: bool


def is_from_tracing(model: Any, error: Exception) -> bool:
    """Whether a failure came before anything was computed."""
    if keras_backend() != "tensorflow" or getattr(model, "run_eagerly", False):
        return False
    return not isinstance(error, StopIteration | tf.errors.OpError)


class Batch:
    """A batch that was taken from what a model's function is given, to be given more than once.

    Args:
        given: what the function was given: an iterator, or, to predict, a list of batches.
        value: the batch.
        spec: what the function was traced for.
        strategy: what has distributed it, if anything has.
    """

    def __init__(self, given: Any, value: Any, spec: Any, strategy: Any = None) -> None:
        self._given = given
        self._value = value
        self._spec = spec
        self._strategy = strategy

    @classmethod
    def of(cls, given: Any, strategy: Any, known: list[Any]) -> Batch | None:
        """Takes the next batch; None, and nothing is taken, where it could not be given again.

        Args:
            given: what the function was given.
            strategy: what distributes the model.
            known: specs of batches that can be given again; more are added.
        """
        if isinstance(given, list | tuple):
            return cls(given, None, None)
        distributed = isinstance(given, tf.distribute.DistributedIterator)
        if distributed and strategy.num_replicas_in_sync > 1:
            return None
        if not distributed and not isinstance(given, tf.data.Iterator):
            return None
        spec = given.element_spec
        if spec not in known:
            if not _can_be_given(spec):
                return None
            known.append(spec)
        return cls(given, next(given), spec, strategy if distributed else None)

    def again(self) -> Any:
        """Returns what the function is to be given."""
        if self._spec is None:
            return self._given
        data = _data_of(self._value, self._spec)
        if self._strategy is not None:
            data = self._strategy.experimental_distribute_dataset(data)
        return iter(data)


def _can_be_given(spec: Any) -> bool:
    """Whether a batch that a function was traced for can be made of tensors."""
    if any(not isinstance(each, tf.TensorSpec) for each in tf.nest.flatten(spec)):
        return False
    try:
        empty = tf.nest.map_structure(
            lambda each: tf.zeros([size or 0 for size in each.shape.as_list() or ()], each.dtype),
            spec,
        )
        return bool(_data_of(empty, spec).element_spec == spec)
    except (TypeError, ValueError):
        # A structure of somebody's own, or tensors of any number of dimensions.
        return False


def _data_of(value: Any, spec: Any) -> Any:
    """Makes a batch of tensors, of which a function knows no more than the spec says."""

    @no_autograph
    def as_traced(*parts: Any) -> Any:
        # Only a plain tuple is taken apart.
        given = parts if type(value) is tuple else parts[0]
        return tf.nest.map_structure(
            # Of a batch with 64 rows the function knows only that it has rows.
            lambda each, known: tf.compat.v1.placeholder_with_default(each, known.shape),
            given,
            spec,
        )

    return tf.data.Dataset.from_tensors(value).map(as_traced)


class StepFunction:
    """What stands in for a model's own function at a step that saves what is inside.

    Args:
        model: the model.
        kind: which of its functions.
        own: the model's own function.
        question: what is to be seen.

    Attributes:
        own: the model's own function.
        stateful: whether the step draws random numbers whose state is the function's own. Then
            only one of the two functions may run, or training would not be the same.
        inside: what the last call saw: for each name a tensor of every replica.
        called: whether it was ever called.
        ran: whether the last call has computed anything.
        hidden: whether the model's function turned out not to run the model's step.
        failed: what went wrong where the model's own function has made the step nevertheless.
        alone: whether only this function can be traced: then it runs at every step.
    """

    def __init__(self, model: Any, kind: Kind, own: Any, question: CaptureRequest) -> None:
        self.own = own
        self.stateful = self.called = self.ran = self.hidden = self.alone = False
        self.failed: Exception | None = None
        self.inside: dict[str, tuple[Any, ...]] = {}
        self._model = model
        self._kind = kind
        self._question = question
        self._step = getattr(model, kind.step)
        self._telling: Any = None
        self._specs: list[Any] = []
        # Whether a step must not run twice; whether the model's own function has run.
        self._once = self._own_ran = False
        # The variables of the step, and what they held before it.
        self._variables: list[tuple[Any, Any]] = []
        self._before: list[tuple[Any, Any]] = []

    def __call__(self, *args: Any) -> Any:
        """Runs one step and keeps what is inside of it."""
        self.called, self.ran = True, False
        if not self._once and not self.alone and self._must_stay_apart():
            try:
                batch = Batch.of(args[0], self._model.distribute_strategy, self._specs)
            except (StopIteration, tf.errors.OutOfRangeError):
                # At the end of the data the model's own function does what it always does.
                self.called = self._telling is not None
                return self.own(*args)
            if batch is not None:
                return self._tell_and_run(batch)
        result = self._tell(args)
        self.ran = True
        return result

    def _must_stay_apart(self) -> bool:
        """Whether a step with more results would be computed in another way.

        TensorFlow computes several layers at once where nobody asks for what is in between, with
        other roundings; and XLA all of a step.
        """
        if keras_backend() != "tensorflow" or self._model.run_eagerly:
            return False
        return self._question.layers or bool(self._model.jit_compile)

    def _tell_and_run(self, batch: Batch) -> Any:
        """Looks into a step, takes it back, and has the model's own function make it."""
        if self._telling is not None:
            self._remember_state()
        try:
            result = self._tell((batch.again(),))
        except Exception as error:
            if not is_from_tracing(self._model, error):
                raise
            self.failed = error
        else:
            self.ran = True
            if self._once:
                # Found out just now: the step stands.
                return result
            self._restore_state()
        return self._run_own(batch)

    def _run_own(self, batch: Batch) -> Any:
        try:
            result = self.own(batch.again())
        except Exception as error:
            failed = self.failed is not None or self._own_ran
            if failed or not is_from_tracing(self._model, error):
                raise
            # Without the hook it would have been traced first, and would have worked.
            self.alone = True
            return self._tell((batch.again(),))
        self._own_ran = True
        return result

    def _remember_state(self) -> None:
        self._before = [
            (handle, tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype))
            for handle, dtype in self._variables
        ]

    def _restore_state(self) -> None:
        for handle, value in self._before:
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        self._before = []

    def _tell(self, args: tuple[Any, ...]) -> Any:
        with self._made_to_tell():
            if self._telling is None:
                self._telling = self._make()
            return self._without_inside(self._telling(*args))

    def _without_inside(self, result: Any) -> Any:
        if not isinstance(result, dict) or _INSIDE not in result:
            # A function of the model's own making.
            self.hidden, self.inside = True, {}
            return result
        result = dict(result)
        self.inside = result.pop(_INSIDE)
        return result.get(_RESULT, result)

    def _make(self) -> Any:
        """Has Keras make a function of the step as it is now; the model keeps its own."""
        before = getattr(self._model, self._kind.function)
        getattr(self._model, self._kind.make)(force=True)
        made = getattr(self._model, self._kind.function)
        setattr(self._model, self._kind.function, before)
        return made

    @contextmanager
    def _made_to_tell(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(replaced(self._model, self._kind.step, self._telling_step))
            stack.enter_context(watched(self._model, self._all_optimizers()))
            strategy = replicas_of(self._model)
            if strategy is not None:
                stack.enter_context(replaced(strategy, "run", _run_of_all(strategy)))
            if keras_backend() == "torch":
                import torch

                # Inside of a compiled function nothing is seen.
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            yield

    @no_autograph
    def _telling_step(self, data: Any) -> dict[str, Any]:
        recording = Recording(self._model)
        recording.see_data(data)
        with recording.active():
            result = self._step(data)
        # Named only now: variables may have been made just before.
        tensors = recording.tensors(ModelNames(self._model), self._question.wanted)
        if keras_backend() == "tensorflow":
            self._take_note(recording)
        inside: dict[str, Any] = tensors
        if replicas_of(self._model) is None:
            inside = {name: (tensor,) for name, tensor in tensors.items()}
        if isinstance(result, dict):
            return {**result, _INSIDE: inside}
        return {_RESULT: result, _INSIDE: inside}

    def _take_note(self, recording: Recording) -> None:
        """Finds out, while a step is traced, how it can run."""
        self.stateful = self.stateful or recording.has_state_of_its_own()
        self._once = self.stateful or recording.has_other_effects()
        self._variables = recording.variables()
        for name in ("_train_counter", "_test_counter", "_predict_counter"):
            # Keras 2 counts in another function around the step.
            counter = getattr(self._model, name, None)
            if counter is not None:
                self._variables.append((counter.handle, counter.dtype))
        if self._question.layers or getattr(self._model, "jit_compile", False):
            # Nothing has been computed yet.
            with tf.init_scope():
                self._remember_state()

    def _all_optimizers(self) -> list[Any]:
        """Those of the model, and those that were named besides."""
        every = (*optimizers_of(self._model), *self._question.optimizers)
        return list({id(each): each for each in every}.values())


def is_optimizer(value: Any) -> bool:
    """Whether something is an optimizer of Keras."""
    return isinstance(value, keras.optimizers.Optimizer | _legacy_optimizer())


def optimizers_of(model: Any) -> list[Any]:
    """Those that a model was compiled with, or has in its attributes."""
    held = [getattr(model, "optimizer", None)]
    for value in vars(model).values():
        if isinstance(value, Mapping):
            held += value.values()
        else:
            held += value if isinstance(value, Sequence) else [value]
    return list({id(each): each for each in held if is_optimizer(each)}.values())


def _legacy_optimizer() -> Any:
    legacy = getattr(keras.optimizers, "legacy", None)
    return getattr(legacy, "Optimizer", keras.optimizers.Optimizer)


def steps_per_execution(model: Any) -> int:
    """How many batches a model takes at once."""
    steps = getattr(model, "_steps_per_execution", None)
    if steps is None:
        steps = getattr(model, "steps_per_execution", None) or 1
    return int(steps.numpy()) if hasattr(steps, "numpy") else int(steps)


def can_look_inside(model: Any) -> bool:
    """Whether a model runs where a second function may take turns with its own.

    Processes that train together must run the same functions at the same time.
    """
    if keras_backend() != "tensorflow":
        return keras_backend() == "torch"
    strategy = model.distribute_strategy
    known = tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy
    return isinstance(strategy, known) or "Default" in type(strategy).__name__


def replicas_of(model: Any) -> Any:
    """Returns the strategy that runs a model on several devices; None if it runs on one."""
    if keras_backend() != "tensorflow":
        return None
    strategy = model.distribute_strategy
    return strategy if strategy.num_replicas_in_sync > 1 else None


def _run_of_all(strategy: Any) -> Any:
    """What replicas return is put together by Keras: what is inside of each is kept apart."""
    original = strategy.run

    def run(fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        result = dict(original(fn, args=args, kwargs=kwargs, options=options))
        result[_INSIDE] = {
            # No list: tf.data would make one tensor of it.
            name: tuple(strategy.experimental_local_results(value))
            for name, value in result[_INSIDE].items()
        }
        return result

    return no_autograph(run)
