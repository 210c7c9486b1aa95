"""Gradient tapes: losses, gradients and variables of a custom training loop.

Outside a `tf.function` the tensors of a tape have values, which are saved at once. Inside one the
tape is used once, while the function is traced, and its tensors are symbolic: operations that save
them become part of the function, and run at the steps that save.
"""

from __future__ import annotations

import weakref
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from smdebug.mode_keys import ModeKeys
from smdebug.tensorflow.backend import flatten, is_composite, is_sparse, is_variable, tf
from smdebug.tensorflow.keras.recording import Recording, recorded_layers
from smdebug.tensorflow.keras.recording_tape import make_recording, steps_of
from smdebug.tensorflow.keras.replicas import local_replicas
from smdebug.tensorflow.naming import gradient_name, numbered
from smdebug.tensorflow.tensors import is_symbolic, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.hook.capture import StepCapture
    from smdebug.hook.plan import SavePlan, StepCache, StepPlan
    from smdebug.tensorflow.keras.adapter import KerasAdapter

NamedTensors = list[tuple[str, Any]]


class Tapes:
    """The tapes that a hook observes.

    Args:
        adapter: the adapter, which begins steps.
    """

    def __init__(self, adapter: KerasAdapter) -> None:
        self.adapter = adapter
        self._relevant: StepCache[bool] = adapter.pipeline.new_cache()
        self._names: dict[int, str] = {}
        self._used: set[str] = set()
        # The tape whose step began last: what the user saves belongs to it.
        self._last: TapeSteps | None = None
        self._order: Any = None

    def wrap(self, tape: Any) -> None:
        """Observe a tape."""
        others = [each for each in steps_of(tape) if each.tapes is not self]
        make_recording(tape, [*others, TapeSteps(self)])

    def keep_order(self, graph: Any) -> None:
        """Have TensorFlow run functions with tapes one after the other, in the order of the calls.

        Inside another function it runs calls in parallel that share no variable. Not elsewhere: a
        function with a variable that no model has cannot be exported.
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

    def step_began(self, steps: TapeSteps) -> None:
        """Make a tape the one that the user's tensors belong to."""
        self._last = steps

    def save_data(self, kind: str, value: Any) -> None:
        """Save inputs or predictions at the current step."""
        values = [each for each in flatten(value) if each is not None]
        dense = [each for each in values if not is_composite(each)]
        if len(dense) < len(values):
            self.adapter.warn_once(f"ragged and sparse {kind} are not saved")
        self._save(list(zip(numbered(kind, len(dense)), dense, strict=True)))

    def save_gradients(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Save gradients at the current step."""
        self._save(
            [
                (gradient_name(self.name_of(variable)), gradient)
                for gradient, variable in pairs
                if gradient is not None
            ]
        )

    def _save(self, tensors: NamedTensors) -> None:
        if not tensors:
            return
        # An evaluation between tapes is a step of its own.
        steps = self._last if self.adapter.pipeline.steps.mode is ModeKeys.TRAIN else None
        if steps is None or not steps.can_save(tensors):
            steps = TapeSteps(self)
        steps.save(tensors)

    def is_relevant(self, plan: StepPlan, name: str) -> bool:
        """Return whether a tensor is saved or observed at such steps; regexes are matched once."""
        return self._relevant.get(plan, name, lambda: plan.is_relevant(name))

    def name_of(self, variable: Any) -> str:
        """Return a name that no other living variable has."""
        known = self._names.get(id(variable))
        if known is None:
            base = known = self.adapter.named.variable(variable)
            number = 0
            while known in self._used:
                number += 1
                known = f"{base}_{number}"
            self._used.add(known)
            self._names[id(variable)] = known
            # Variables created at every step share one name; the reference is weak, because a
            # variable must not keep the hook alive.
            end = weakref.finalize(variable, _release_name, weakref.ref(self), id(variable), known)
            end.atexit = False
        return known

    def release_name(self, key: int, name: str) -> None:
        """Make the name of a deleted variable available again."""
        if self._names.get(key) == name:
            del self._names[key]
            self._used.discard(name)

    def forget(self) -> None:
        """Drop all references to tapes and variables."""
        self._last = None
        self._names.clear()
        self._used.clear()


class TapeSteps:
    """The steps of one tape: one or, inside a function, one for each of its calls.

    Args:
        tapes: all tapes of the hook.

    Attributes:
        tapes: all tapes of the hook.
    """

    def __init__(self, tapes: Tapes) -> None:
        self.tapes = tapes
        self._adapter = tapes.adapter
        self._pipeline = tapes.adapter.pipeline
        self._capture: StepCapture | None = None
        # Inside a function: its graph, and a tensor: whether the present call saves.
        self._graph: Any = None
        self._saves: Any = None
        # The plan that the function was traced for, and the tensors that it does not save.
        self._plan: SavePlan | None = None
        self._omitted: set[str] = set()
        self._observed = True
        self._stack = ExitStack()
        self._recording: Recording | None = None
        self._losses: list[Any] = []
        self._gradients: dict[str, int] = {}

    # ---- called by the tape

    def enter(self) -> None:
        """Begin a step, or have the function begin one whenever it runs."""
        self._losses, self._gradients = [], {}
        self._graph = self._saves = self._capture = None
        self._observed = self._is_observed()
        if not self._observed:
            return
        if tf.executing_eagerly():
            self._begin()
        else:
            self._graph = tf.compat.v1.get_default_graph()
            # All tensors that are ever saved must be known while the function is traced.
            self._plan = self._adapter.refreshed_plan()
            self._omitted = set()
            self.tapes.keep_order(self._graph)
            self._saves = tf.py_function(self._begin, [], tf.bool)
            self._saves.set_shape([])
        model = self._adapter.registered
        if model is not None and (self._graph is not None or self._capture is not None):
            self._recording = Recording(model)
            self._stack.enter_context(recorded_layers(model))
            self._stack.enter_context(self._recording.active())

    def exit(self) -> None:
        """Save the layers that were called while the tape recorded."""
        self._stack.close()
        recording, self._recording = self._recording, None
        if recording is None or not self._pipeline.active:
            return
        with self._pipeline.guarded:
            plan = self._pipeline.plan
            names = self._adapter.named.names()
            tensors = recording.tensors(names, lambda name: plan.ever(ModeKeys.TRAIN, name))
            self.save(list(tensors.items()))

    def gradient(self, target: Any, sources: Any, result: Any) -> None:
        """Save losses, variables and gradients, and the variables of optimizers."""
        if not self._observed or (self._graph is None and self._capture is None):
            return
        with self._pipeline.guarded:
            tensors: NamedTensors = self._new_losses(target)
            variables, gradients = flatten(sources), flatten(result)
            if len(variables) == len(gradients):
                for variable, gradient in zip(variables, gradients, strict=True):
                    if is_variable(variable):
                        tensors += self._variable_and_gradient(variable, gradient)
            tensors += self._adapter.optimizer_variables()
            self.save(tensors)

    def _new_losses(self, target: Any) -> NamedTensors:
        found: NamedTensors = []
        for loss in flatten(target):
            if any(loss is known for known in self._losses):
                continue
            number = len(self._losses)
            self._losses.append(loss)
            found.append((f"loss_{number}" if number else "loss", loss))
        return found

    def _variable_and_gradient(self, variable: Any, gradient: Any) -> NamedTensors:
        """Return a variable, once per step, and its gradient, numbered from the second on."""
        name = self.tapes.name_of(variable)
        number = self._gradients.get(name, 0)
        self._gradients[name] = number + 1
        found: NamedTensors = [] if number else [(f"weights/{name}:0", variable)]
        if gradient is not None:
            found.append((gradient_name(name) + (f"_{number}" if number else ""), gradient))
        return found

    # ---- saving

    def can_save(self, tensors: NamedTensors) -> bool:
        """Return whether tensors can belong to the step of this tape."""
        symbolic = any(is_symbolic(value) for _, value in tensors)
        return not symbolic or self._is_in_graph()

    def save(self, tensors: NamedTensors) -> None:
        """Save tensors at the step of this tape: now, or whenever the function runs."""
        if not self._observed or not self._pipeline.active:
            return
        symbolic = any(is_symbolic(value) for _, value in tensors)
        if not symbolic and (self._graph is None or tf.executing_eagerly()):
            self._offer(tensors)
        elif self._graph is None or self._is_in_graph():
            plan, mode = self._pipeline.plan, self._pipeline.steps.mode
            saved = [each for each in tensors if plan.ever(mode, each[0])]
            self._omitted.update({name for name, _ in tensors} - {name for name, _ in saved})
            if saved:
                self._save_in_graph(saved)

    def _save_in_graph(self, tensors: NamedTensors) -> None:
        """Add operations to the function that save tensors at the steps that save."""
        names = [name for name, _ in tensors]

        def save(*values: Any) -> None:
            self._offer(list(zip(names, values, strict=True)))

        def run() -> Any:
            # In the branch, so that a step that saves nothing reads no variable.
            values = [_dense_value(value) for _, value in tensors]
            with tf.control_dependencies([tf.py_function(save, values, [])]):
                return tf.constant(True)

        if self._saves is None:
            run()
        else:
            tf.cond(self._saves, run, lambda: tf.constant(False))

    def _begin(self) -> bool:
        """Begin a step; return whether anything is saved at it."""
        self._capture = None
        if not self._pipeline.active:
            return False
        # Also set by `wrap_tape`, which runs only once for a function.
        self._adapter.set_mode(ModeKeys.TRAIN)
        self._pipeline.stop_if_requested()
        self.tapes.step_began(self)
        self._capture = self._pipeline.begin_step()
        if self._graph is not None and self._pipeline.plan is not self._plan:
            self._warn_about_omitted()
        return self._capture is not None

    def _warn_about_omitted(self) -> None:
        """Warn about tensors that the user included after the function had been traced."""
        plan = self._plan = self._pipeline.plan
        missing = [name for name in sorted(self._omitted) if plan.ever(ModeKeys.TRAIN, name)]
        if missing:
            self._adapter.warn_once(
                f"{', '.join(missing[:3])}{' and more' if missing[3:] else ''} cannot be saved: "
                "the tf.function that computes them was traced before they were included; include "
                "them before its first call"
            )

    def _offer(self, tensors: NamedTensors) -> None:
        self._adapter.begin_user_step()
        with self._pipeline.guarded:
            capture = self._capture or self._pipeline.current
            if capture is None:
                return
            for name, value in tensors:
                # A symbolic tensor here belongs to a function that the loop calls.
                plan = capture.plan
                if plan and self.tapes.is_relevant(plan, name) and not is_symbolic(value):
                    self._pipeline.offer(name, _dense_value(value), capture)
            if capture is not self._pipeline.current and capture.pending:
                # Another step has begun since.
                self._pipeline.hand_over(capture, finish=True)

    # ---- the context

    def _is_observed(self) -> bool:
        """Return whether the tape begins steps of the hook."""
        # During `fit` the batch is the step; with several replicas the first begins it.
        if self._adapter.in_batch or _is_other_replica():
            return False
        if not tf.executing_eagerly() and _is_compiled():
            self._adapter.warn_once(
                "nothing is saved of a tape inside a tf.function with jit_compile=True; use the "
                "tape outside the function, or jit_compile=False"
            )
            return False
        return True

    def _is_in_graph(self) -> bool:
        """Return whether the function of the tape, or a branch of it, is being traced."""
        graph = tf.compat.v1.get_default_graph()
        while graph is not None and graph is not self._graph:
            graph = getattr(graph, "outer_graph", None)
        return self._graph is not None and graph is self._graph


def _release_name(tapes: weakref.ref[Tapes], key: int, name: str) -> None:
    alive = tapes()
    if alive is not None:
        alive.release_name(key, name)


def _dense_value(value: Any) -> Any:
    """Return a variable, a sparse gradient or a tensor as a tensor."""
    if is_variable(value):
        return value_of(value)
    return tf.convert_to_tensor(value) if is_sparse(value) else value


def _is_other_replica() -> bool:
    """Return whether this is a replica of the process other than the first."""
    context = tf.distribute.get_replica_context()
    if context is None:
        return False
    number = context.replica_id_in_sync_group
    number = tf.get_static_value(number) if tf.is_tensor(number) else number
    # Replicas are numbered over all processes.
    return number is not None and int(number) % local_replicas(context.strategy) != 0


def _is_compiled() -> bool:
    """Return whether XLA will compile the function that is being traced; it cannot call Python."""
    with suppress(ImportError, AttributeError):
        from tensorflow.python.ops import control_flow_util

        graph = tf.compat.v1.get_default_graph()
        return bool(control_flow_util.GraphOrParentsInXlaContext(graph))
    return False
