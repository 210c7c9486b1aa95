"""Tapes of TensorFlow: losses, gradients and variables of a training loop of one's own.

Outside of a `tf.function` a tape holds values, which are saved at once. Inside of one it is used
once, while the function is traced, and what is seen stands for values: operations that hand them
over become part of the function, and run at the steps that save.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.backend import flatten, tf
from smdebug.tensorflow.collection import is_variable
from smdebug.tensorflow.layers import variable_name
from smdebug.tensorflow.naming import gradient_name, numbered
from smdebug.tensorflow.recording import Recording, as_it_is, watched_layers
from smdebug.tensorflow.tensors import value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.hook.capture import StepCapture
    from smdebug.tensorflow.keras import KerasHook

Pairs = list[tuple[str, Any]]


class Tapes:
    """The tapes that a hook watches.

    Args:
        hook: the hook.
    """

    def __init__(self, hook: KerasHook) -> None:
        self._hook = hook
        self._classes: dict[type, type] = {}
        self._variables: dict[int, tuple[str, Any]] = {}
        self._taken: set[str] = set()
        # The last tape that was entered: what is saved by hand belongs to its step.
        self._last: TapeSteps | None = None

    def wrap(self, tape: Any) -> Any:
        """Makes a tape tell what it does; it stays the same object."""
        kind = type(tape)
        if kind not in self._classes.values():
            if kind not in self._classes:
                self._classes[kind] = _telling(kind)
            tape.__class__ = self._classes[kind]
        tape.smdebug_steps = TapeSteps(self._hook, self)
        return tape

    def enter(self, steps: TapeSteps) -> None:
        """Takes note of the tape that was entered last."""
        self._last = steps

    def save(self, kind: str, value: Any) -> None:
        """Saves inputs or predictions at the step of the last tape."""
        values = [each for each in flatten(value) if each is not None]
        self._hand(list(zip(numbered(kind, len(values)), values, strict=True)))

    def save_gradients(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Saves gradients at the step of the last tape."""
        self._hand(
            [
                (gradient_name(self.name_of(variable)), dense(gradient))
                for gradient, variable in pairs
                if gradient is not None
            ]
        )

    def name_of(self, variable: Any) -> str:
        """Returns a name that no other variable has."""
        known = self._variables.get(id(variable))
        if known is None:
            base = name = self._hook._short_name(variable) or variable_name(variable)
            number = 0
            while name in self._taken:
                number += 1
                name = f"{base}_{number}"
            self._taken.add(name)
            # The variable is kept: an id is only good as long as it lives.
            known = self._variables[id(variable)] = name, variable
        return known[0]

    def _hand(self, pairs: Pairs) -> None:
        if not pairs:
            return
        # An evaluation between tapes is a step that began by itself.
        steps = self._last if self._hook.mode is ModeKeys.TRAIN else None
        (steps or TapeSteps(self._hook, self)).hand(pairs)


class TapeSteps:
    """The steps of one tape: one, or, inside of a function, one for each of its calls.

    Args:
        hook: the hook.
        tapes: all of its tapes.
    """

    def __init__(self, hook: KerasHook, tapes: Tapes) -> None:
        self._hook = hook
        self._tapes = tapes
        self._capture: StepCapture | None = None
        # Inside of a function: whether the present call saves, as a tensor.
        self._saves: Any = None
        self._graph: Any = None
        self._stack = ExitStack()
        self._recording: Recording | None = None
        self._losses: list[Any] = []
        self._gradients: dict[str, int] = {}
        self._other_replica = False

    # ---- what the tape tells

    def enter(self) -> None:
        """Begins a step."""
        self._tapes.enter(self)
        self._losses, self._gradients = [], {}
        if tf.executing_eagerly():
            self._graph = self._saves = None
            self._begin()
        else:
            self._other_replica = _is_other_replica()
            if self._other_replica:
                return
            self._graph = tf.compat.v1.get_default_graph()
            # What is ever wanted must be known while the function is traced.
            self._hook._make_plan()
            self._saves = tf.py_function(self._begin, [], tf.bool)
            # A function of unknown shape would have none.
            self._saves.set_shape([])
        self._watch_layers()

    def exit(self) -> None:
        """Ends the part of the step that the tape saw."""
        self._stack.close()
        recording, self._recording = self._recording, None
        if recording is None:
            return
        with self._hook._entered():
            hook = self._hook
            plan = hook._plan
            names = hook._model_names()
            seen = recording.tensors(names, lambda name: plan.ever(ModeKeys.TRAIN, name))
            self.hand(list(seen.items()))

    def gradient(self, target: Any, sources: Any, result: Any) -> None:
        """Saves what a gradient is of, what it is by, and itself."""
        with self._hook._entered():
            pairs: Pairs = self._named_losses(target)
            variables = flatten(sources)
            gradients = flatten(result) if _same_length(variables, result) else []
            for variable, gradient in zip(variables, gradients, strict=False):
                if is_variable(variable):
                    pairs += self._named_gradient(self._tapes.name_of(variable), variable, gradient)
            pairs += self._hook._named_optimizer_variables()
            self.hand(pairs)

    # ---- saving

    def hand(self, pairs: Pairs) -> None:
        """Saves tensors at the step of this tape: now, or whenever the function runs."""
        if self._other_replica:
            return
        hook = self._hook
        wanted = [(name, each) for name, each in pairs if hook._plan.ever(ModeKeys.TRAIN, name)]
        if self._graph is None or tf.executing_eagerly():
            self._save(wanted)
            return
        graph = tf.compat.v1.get_default_graph()
        if graph is not self._graph or not wanted:
            return
        names = [name for name, _ in wanted]
        values = [_tensor(each) for _, each in wanted]

        def save(*arrived: Any) -> None:
            self._save(list(zip(names, arrived, strict=True)))

        def run() -> Any:
            with tf.control_dependencies([tf.py_function(save, values, [])]):
                return tf.constant(True)

        tf.cond(self._saves, run, lambda: tf.constant(False))

    def _begin(self) -> bool:
        """Begins a step of the hook; returns whether anything is saved at it."""
        hook = self._hook
        if hook._closed or hook._forked:
            self._capture = None
            return False
        hook._stop_if_asked()
        self._capture = hook._begin_step()
        return self._capture is not None

    def _save(self, pairs: Pairs) -> None:
        hook = self._hook
        with hook._entered(), self._current():
            for name, value in pairs:
                if is_variable(value):
                    if hook._interesting(name):
                        hook._offer(name, value_of(value))
                else:
                    hook._offer(name, dense(value))

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Makes the step of this tape the one that is saved: another may have begun since."""
        hook = self._hook
        if self._capture is None or hook._capture is self._capture:
            yield
            return
        before, hook._capture = hook._capture, self._capture
        try:
            yield
            hook._hand_over(finish=True)
        finally:
            hook._capture = before

    def _named_losses(self, target: Any) -> Pairs:
        pairs: Pairs = []
        for loss in flatten(target):
            if any(loss is seen for seen in self._losses):
                continue
            number = len(self._losses)
            self._losses.append(loss)
            pairs.append(("loss" if not number else f"loss_{number}", loss))
        return pairs

    def _named_gradient(self, name: str, variable: Any, gradient: Any) -> Pairs:
        """A variable, once in a step, and its gradient, which has a number from the second on."""
        pairs: Pairs = []
        number = self._gradients.get(name, 0)
        self._gradients[name] = number + 1
        if not number:
            pairs.append((f"weights/{name}:0", variable))
        if gradient is not None:
            pairs.append((gradient_name(name) + (f"_{number}" if number else ""), gradient))
        return pairs

    def _watch_layers(self) -> None:
        """Looks at the layers of the registered model until the tape is left."""
        hook = self._hook
        model = hook._registered
        if model is None or (self._graph is None and self._capture is None):
            return
        self._recording = Recording(model)
        self._stack.enter_context(watched_layers(model))
        self._stack.enter_context(self._recording.active())


def dense(gradient: Any) -> Any:
    """Returns a gradient as one tensor."""
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient


def _tensor(value: Any) -> Any:
    return value_of(value) if is_variable(value) else dense(value)


def _same_length(variables: list[Any], result: Any) -> bool:
    return len(flatten(result)) == len(variables)


def _is_other_replica() -> bool:
    """Whether this is not the first of several replicas: the first one speaks for all."""
    context = tf.distribute.get_replica_context()
    if context is None:
        return False
    number = tf.get_static_value(context.replica_id_in_sync_group)
    return number is not None and int(number) != 0


def _telling(kind: Any) -> Any:
    """Makes a class of tapes that tell what they do."""

    class TellingTape(kind):
        smdebug_steps: TapeSteps

        @as_it_is
        def __enter__(self) -> Any:
            self.smdebug_steps.enter()
            return super().__enter__()

        @as_it_is
        def __exit__(self, *error: Any) -> Any:
            result = super().__exit__(*error)
            self.smdebug_steps.exit()
            return result

        @as_it_is
        def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            result = super().gradient(target, sources, *args, **kwargs)
            self.smdebug_steps.gradient(target, sources, result)
            return result

    TellingTape.__name__ = kind.__name__
    return TellingTape
