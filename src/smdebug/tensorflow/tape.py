"""Tapes of TensorFlow: losses, gradients and variables of a training loop of one's own.

Outside of a `tf.function` a tape holds values, which are saved at once. Inside of one it is used
once, while the function is traced, and what is seen stands for values: operations that hand them
over become part of the function, and run at the steps that save.
"""

from __future__ import annotations

import weakref
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.backend import flatten, is_variable, tf
from smdebug.tensorflow.layers import variable_name
from smdebug.tensorflow.naming import gradient_name, numbered
from smdebug.tensorflow.recording import Recording, watched_layers
from smdebug.tensorflow.recording_tape import make_recording
from smdebug.tensorflow.replicas import local_replicas
from smdebug.tensorflow.tensors import is_symbolic, value_of

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
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        # The tape whose step began last: what is saved by hand belongs to it.
        self._last: TapeSteps | None = None
        self._order: Any = None

    def wrap(self, tape: Any) -> Any:
        """Makes a tape tell what it does; it stays the same object."""
        told = [each for each in getattr(tape, "smdebug_steps", ()) if each.hook is not self._hook]
        make_recording(tape)
        tape.smdebug_steps = [*told, TapeSteps(self._hook, self)]
        return tape

    def keep_order(self, graph: Any) -> None:
        """Has TensorFlow run functions with tapes one after the other, as they are called.

        Inside of another function it runs those side by side that share no variable. It is not done
        where it does not matter: a function with a variable that no model has cannot be exported.
        """
        if getattr(graph, "outer_graph", None) is None or not graph.outer_graph.building_function:
            return
        if self._order is None:
            with tf.init_scope(), tf.device("CPU:0"):
                name = f"smdebug_order_{id(self)}"
                self._order = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=name)
                zero = tf.constant(0, tf.int64)
                tf.raw_ops.AssignVariableOp(resource=self._order, value=zero)
        one = tf.constant(1, tf.int64)
        tf.raw_ops.AssignAddVariableOp(resource=self._order, value=one)

    def begun(self, steps: TapeSteps) -> None:
        """Takes note of the tape whose step began last."""
        self._last = steps

    def save(self, kind: str, value: Any) -> None:
        """Saves inputs or predictions at the present step."""
        values = [each for each in flatten(value) if each is not None]
        plain = [each for each in values if not _is_composite(each)]
        if len(plain) < len(values):
            self._hook._say(f"{kind} that are ragged or sparse are not saved")
        self._hand(list(zip(numbered(kind, len(plain)), plain, strict=True)))

    def save_gradients(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Saves gradients at the present step."""
        named = [
            (gradient_name(self.name_of(variable)), gradient)
            for gradient, variable in pairs
            if gradient is not None
        ]
        self._hand(named)

    def name_of(self, variable: Any) -> str:
        """Returns a name that no other variable has at the same time."""
        known = self._names.get(id(variable))
        if known is None:
            base = known = self._hook._short_name(variable) or variable_name(variable)
            number = 0
            while known in self._taken:
                number += 1
                known = f"{base}_{number}"
            self._taken.add(known)
            self._names[id(variable)] = known
            # A variable made at every step is one tensor; and it must not keep the hook alive.
            end = weakref.finalize(variable, _let_go, weakref.ref(self), id(variable), known)
            end.atexit = False
        return known

    def forget(self) -> None:
        """Lets go of everything."""
        self._last = None
        self._names.clear()
        self._taken.clear()

    def let_go(self, key: int, name: str) -> None:
        """Frees the name of a variable that is no more."""
        if self._names.get(key) == name:
            del self._names[key]
            self._taken.discard(name)

    def _hand(self, pairs: Pairs) -> None:
        if not pairs:
            return
        # An evaluation between tapes is a step of its own.
        last = self._last if self._hook.mode is ModeKeys.TRAIN else None
        steps = last or TapeSteps(self._hook, self)
        if steps.takes(pairs):
            steps.hand(pairs)
        else:
            TapeSteps(self._hook, self).hand(pairs)


class TapeSteps:
    """The steps of one tape: one, or, inside of a function, one for each of its calls.

    Args:
        hook: the hook.
        tapes: all of its tapes.

    Attributes:
        hook: the hook.
    """

    def __init__(self, hook: KerasHook, tapes: Tapes) -> None:
        self.hook = hook
        self._tapes = tapes
        self._capture: StepCapture | None = None
        # Inside of a function: whether the present call saves, as a tensor.
        self._graph: Any = None
        self._saves: Any = None
        self._plan: Any = None
        self._left_out: set[str] = set()
        self._told = True
        self._stack = ExitStack()
        self._recording: Recording | None = None
        self._losses: list[Any] = []
        self._gradients: dict[str, int] = {}

    # ---- what the tape tells

    def enter(self) -> None:
        """Begins a step, or makes the function begin one."""
        self._losses, self._gradients = [], {}
        self._graph = self._saves = self._capture = None
        self._told = self._is_told()
        if not self._told:
            return
        if tf.executing_eagerly():
            self._begin()
        else:
            self._graph = tf.compat.v1.get_default_graph()
            # What is ever wanted must be known while the function is traced.
            self.hook._make_plan()
            self._plan = self.hook._plan
            self._left_out = set()
            self._tapes.keep_order(self._graph)
            self._saves = tf.py_function(self._begin, [], tf.bool)
            self._saves.set_shape([])
        self._watch_layers()

    def exit(self) -> None:
        """Ends the part of the step that the tape saw."""
        self._stack.close()
        recording, self._recording = self._recording, None
        if recording is None or self.hook.closed:
            return
        with self.hook._entered():
            plan = self.hook._plan
            names = self.hook._model_names()
            seen = recording.tensors(names, lambda name: plan.ever(ModeKeys.TRAIN, name))
            self.hand(list(seen.items()))

    def gradient(self, target: Any, sources: Any, result: Any) -> None:
        """Saves what a gradient is of, what it is by, and itself."""
        if not self._told or (self._graph is None and self._capture is None):
            return
        with self.hook._entered():
            pairs: Pairs = self._named_losses(target)
            variables, gradients = flatten(sources), flatten(result)
            if len(variables) == len(gradients):
                for variable, gradient in zip(variables, gradients, strict=True):
                    if is_variable(variable):
                        name = self._tapes.name_of(variable)
                        pairs += self._named_gradient(name, variable, gradient)
            pairs += self.hook._named_optimizer_variables()
            self.hand(pairs)

    # ---- saving

    def takes(self, pairs: Pairs) -> bool:
        """Whether tensors can belong to the step of this tape."""
        symbolic = any(is_symbolic(value) for _, value in pairs)
        return self._is_inside_of_graph() if symbolic else True

    def hand(self, pairs: Pairs) -> None:
        """Saves tensors at the step of this tape: now, or whenever the function runs."""
        if not self._told or self.hook.closed:
            return
        if not any(is_symbolic(value) for _, value in pairs) and (
            self._graph is None or tf.executing_eagerly()
        ):
            self._save(pairs)
        elif self._graph is None or self._is_inside_of_graph():
            plan = self.hook._plan
            wanted = [each for each in pairs if plan.ever(self.hook.mode, each[0])]
            self._left_out.update({name for name, _ in pairs} - {name for name, _ in wanted})
            if wanted:
                self._save_whenever_it_runs(wanted)

    def _save_whenever_it_runs(self, pairs: Pairs) -> None:
        names = [name for name, _ in pairs]

        def save(*arrived: Any) -> None:
            self._save(list(zip(names, arrived, strict=True)))

        def run() -> Any:
            # Here, so that nothing is read or made dense at a step that saves nothing.
            values = [_tensor(value) for _, value in pairs]
            with tf.control_dependencies([tf.py_function(save, values, [])]):
                return tf.constant(True)

        if self._saves is None:
            run()
        else:
            tf.cond(self._saves, run, lambda: tf.constant(False))

    def _begin(self) -> bool:
        """Begins a step of the hook; returns whether anything is saved at it."""
        hook = self.hook
        self._capture = None
        if hook.closed or hook._forked:
            return False
        # `wrap_tape` has said so too, but inside of a function only once.
        hook._run_in(ModeKeys.TRAIN)
        hook._stop_if_asked()
        self._tapes.begun(self)
        self._capture = hook._begin_step()
        if self._graph is not None and hook._plan is not self._plan:
            self._tell_what_is_missing()
        return self._capture is not None

    def _tell_what_is_missing(self) -> None:
        """Says what was asked for only after the function had been traced."""
        plan, self._plan = self.hook._plan, self.hook._plan
        missing = [name for name in sorted(self._left_out) if plan.ever(ModeKeys.TRAIN, name)]
        if missing:
            self.hook._say(
                f"{', '.join(missing[:3])}{' and more' if missing[3:] else ''} cannot be saved: "
                "the tf.function that computes them was traced before they were asked for; ask "
                "before its first call"
            )

    def _save(self, pairs: Pairs) -> None:
        hook = self.hook
        hook._begin_user_step()
        with hook._entered(), self._current():
            for name, value in pairs:
                # Of a function inside of the loop: there is no value.
                if hook._interesting(name) and not is_symbolic(value):
                    hook._offer(name, _tensor(value))

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Makes the step of this tape the one that is saved: another may have begun since."""
        hook = self.hook
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

    # ---- where it is

    def _is_told(self) -> bool:
        """Whether the step of this tape is one of the hook's."""
        # In the middle of `fit` the step is the batch; one replica speaks for all.
        if self.hook._inside.running or _is_other_replica():
            return False
        if not tf.executing_eagerly() and _is_compiled():
            self.hook._say(
                "a tape inside of a tf.function with jit_compile=True cannot be watched, and "
                "nothing of it is saved; use the tape outside of it, or jit_compile=False"
            )
            return False
        return True

    def _is_inside_of_graph(self) -> bool:
        """Whether this is the function of the tape, or a branch of it."""
        graph = tf.compat.v1.get_default_graph()
        while graph is not None and graph is not self._graph:
            graph = getattr(graph, "outer_graph", None)
        return self._graph is not None and graph is self._graph

    def _watch_layers(self) -> None:
        """Looks at the layers of the registered model until the tape is left."""
        model = self.hook._registered
        if model is None or (self._graph is None and self._capture is None):
            return
        self._recording = Recording(model)
        self._stack.enter_context(watched_layers(model))
        self._stack.enter_context(self._recording.active())


def _let_go(tapes: weakref.ref[Tapes], key: int, name: str) -> None:
    alive = tapes()
    if alive is not None:
        alive.let_go(key, name)


def _tensor(value: Any) -> Any:
    """Returns a variable, a sparse gradient or a tensor as a tensor."""
    if is_variable(value):
        return value_of(value)
    return tf.convert_to_tensor(value) if isinstance(value, tf.IndexedSlices) else value


def _is_composite(value: Any) -> bool:
    return isinstance(value, tf.RaggedTensor | tf.SparseTensor)


def _is_other_replica() -> bool:
    """Whether this is not the first of several replicas."""
    context = tf.distribute.get_replica_context()
    if context is None:
        return False
    number = context.replica_id_in_sync_group
    number = tf.get_static_value(number) if tf.is_tensor(number) else number
    # Of several processes each has replicas of its own.
    return number is not None and int(number) % local_replicas(context.strategy) != 0


def _is_compiled() -> bool:
    """Whether the function that is traced will be compiled by XLA, which knows no Python."""
    with suppress(ImportError, AttributeError):
        from tensorflow.python.ops import control_flow_util

        graph = tf.compat.v1.get_default_graph()
        return bool(control_flow_util.GraphOrParentsInXlaContext(graph))
    return False
