"""The hook for sessions of TensorFlow 1: MonitoredSession and Estimator."""

from __future__ import annotations

import functools
import logging
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from smdebug.config.collection import CollectionKeys
from smdebug.exceptions import SMDebugRuntimeError
from smdebug.tensorflow.backend import tf
from smdebug.tensorflow.collection import Collection
from smdebug.tensorflow.graph import GraphView, RunView, read_safely
from smdebug.tensorflow.hook import TENSORFLOW_HOOK, TensorflowHook
from smdebug.tensorflow.naming import SESSION_COLLECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from smdebug.hook.plan import StepPlan
    from smdebug.reductions import Array
    from smdebug.storage.stop_requests import StopRequest

logger = logging.getLogger("smdebug.hook")

_KEYS = CollectionKeys
# Keras may be there without TensorFlow; then there are no sessions either.
_SessionRunHook: Any = object if tf is None else tf.compat.v1.train.SessionRunHook
# How many names a message has.
_SHOWN = 3


class Slices(NamedTuple):
    """What besides its values makes a gradient of which there are only some rows.

    Attributes:
        indices: the name of the numbers of the rows.
        shape: the shape of the gradient, or the name of the tensor that tells it.
    """

    indices: str
    shape: tuple[int, ...] | str

    @property
    def parts(self) -> list[str]:
        """The names of what is needed."""
        return [each for each in self if isinstance(each, str)]


@dataclass
class Reading:
    """What is read at one kind of step.

    Attributes:
        offered: the names of the tensors to save.
        fetched: what is fetched with the user's run, by name.
        repeated: what is computed again after it.
        sources: the names of what that is computed from; they are among `fetched`.
        variables: what is read after it.
        slices: those of the tensors that are gradients of which there are only some rows.
    """

    offered: list[str] = field(default_factory=list)
    fetched: dict[str, Any] = field(default_factory=dict)
    repeated: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    slices: dict[str, Slices] = field(default_factory=dict)


class SessionHook(TensorflowHook, _SessionRunHook):
    __doc__ = (TensorflowHook.__doc__ or "").replace(
        TENSORFLOW_HOOK,
        "Saves tensors of a graph at runs of a session: a hook of `MonitoredSession` and Estimator."
        "\n\n    A step is one `run`. Names are those of the graph, such as `loss:0`. What a run "
        "computes is\n    fetched with it. Variables are read after it, and show what an update of "
        "that step made of\n    them. What a run does not compute is computed after it, if that "
        "has no other effect.",
    )

    default_collections = SESSION_COLLECTIONS
    _context: Any = None
    _view: GraphView | None = None

    def _set_up(self) -> None:
        if tf is None:
            raise SMDebugRuntimeError(
                f"{type(self).__name__} needs TensorFlow, which is not installed; install it, or "
                "use a KerasHook, which works without it"
            )
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        # The variables whose gradients were seen; no graph is kept alive for that.
        self._differentiated: set[str] = set()
        self._slices: dict[str, Slices] = {}
        # What is read at the run that each session is at.
        self._readings: weakref.WeakKeyDictionary[Any, Reading | None] = weakref.WeakKeyDictionary()
        # Names that the hook put into collections, not the user.
        self._named_here: set[str] = set()

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Lets the hook see the gradients that an optimizer computes or is given.

        Args:
            optimizer: a `tf.compat.v1.train.Optimizer`; anything else is left alone with a warning.

        Returns:
            The same object.

        Example:
            >>> optimizer = hook.wrap_optimizer(optimizer)  # doctest: +SKIP
        """
        if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
            logger.warning(
                "wrap_optimizer: gradients are not saved: expected a tf.compat.v1.train.Optimizer, "
                "got %s; give it the optimizer that the graph is built with, or add gradients to "
                "the collection yourself", type(optimizer).__name__,
            )  # fmt: skip
        elif not self._closed and not self._forked and optimizer not in self._optimizers:
            self._optimizers.add(optimizer)
            optimizer.compute_gradients = self._seen_after(optimizer.compute_gradients)
            optimizer.apply_gradients = self._seen_before(optimizer.apply_gradients)
        return optimizer

    # ---- what a session calls

    def begin(self) -> None:
        """Looks at the graph; a session calls it before it begins."""
        if self._closed or self._forked:
            logger.warning(
                "this hook saves nothing: it was closed, or made in another process; make one in "
                "the process that trains"
            )
            return
        with self._entered():
            self._forget_graph()
            self._name_tensors(tf.compat.v1.get_default_graph())
        # Outside of the guard: a configuration that makes no sense always raises.
        self._make_plan()
        self._make_ready()

    def before_run(self, run_context: Any) -> Any:
        """Says what to fetch with a run; the session calls it."""
        if self._closed or self._forked:
            return None
        self._context = run_context
        if self._stop_if_asked():
            return None
        self._guard.raise_pending()
        self._make_plan()
        self._make_ready()
        reading = None
        with self._entered():
            # An evaluation may run, with this hook, before the run of a training has ended.
            reading = self._readings[run_context.session] = self._next_reading(run_context)
        if reading is None or not reading.fetched:
            return None
        return tf.compat.v1.train.SessionRunArgs(reading.fetched)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Saves a step; the session calls it."""
        if self._closed or self._forked:
            return
        # Only now: a run that failed, because there was no more data, was no step.
        self._context = run_context
        capture = self._begin_step()
        reading = self._readings.pop(run_context.session, None)
        if capture is not None and reading is not None:
            with self._entered():
                self._save(reading, dict(run_values.results or {}), run_context.session)
        # Here and not only before the next run, which a session makes once it has begun.
        self._stop_if_asked()
        self._context = None

    def end(self, session: Any) -> None:
        """Publishes what was saved; the session calls it. More sessions may follow."""
        if not self._closed and not self._forked:
            self._differentiated.clear()
            self._forget_graph()
            self.flush()

    # ---- what is in a graph

    def _name_tensors(self, graph: Any) -> None:
        """Puts what is known of a graph into the collections."""
        keys = tf.compat.v1.GraphKeys
        trainable = [each.name for each in graph.get_collection(keys.TRAINABLE_VARIABLES)]
        self._put_names(_KEYS.BIASES, [each for each in trainable if _is_bias(each)])
        self._put_names(_KEYS.WEIGHTS, [each for each in trainable if not _is_bias(each)])
        losses = [each.name for each in graph.get_collection(keys.LOSSES)]
        self._put_names(_KEYS.LOSSES, losses)
        states = [each.name for optimizer in self._optimizers for each in optimizer.variables()]
        self._put_names(_KEYS.OPTIMIZER_VARIABLES, states)

    def _put_names(self, collection: str, names: Iterable[str]) -> None:
        known = self.collection_manager.get(collection)
        new = [name for name in names if not known.has_tensor_name(name)]
        if new:
            self._named_here.update(new)
            self.get_collection(collection).add(new)

    def _forget_graph(self) -> None:
        self._view = None
        self._plan.forget()

    def _seen_after(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compute)
        def compute_gradients(*args: Any, **kwargs: Any) -> Any:
            pairs = compute(*args, **kwargs)
            with self._entered():
                self._see_gradients(pairs)
            return pairs

        return compute_gradients

    def _seen_before(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(apply)
        def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            # They may come only once, as from zip.
            pairs = tuple(grads_and_vars)
            with self._entered():
                self._see_gradients(
                    [each for each in pairs if each[1].name not in self._differentiated]
                )
            return apply(pairs, *args, **kwargs)

        return apply_gradients

    def _see_gradients(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        if self._closed or self._forked or tf.executing_eagerly():
            return
        for gradient, variable in pairs:
            if gradient is None:
                continue
            self._differentiated.add(variable.name)
            name = gradient.name
            if isinstance(gradient, tf.IndexedSlices):
                known = variable.shape.is_fully_defined()
                shape = tuple(variable.shape) if known else gradient.dense_shape.name
                self._slices[name] = Slices(gradient.indices.name, shape)
            self._put_names(_KEYS.GRADIENTS, [name])

    # ---- what is read at a step

    def _next_reading(self, run_context: Any) -> Reading | None:
        """What is read at the step to come; None when nothing is to be done at it."""
        mode = self._steps.mode
        plan = self._plan.at(mode, self._steps.mode_steps[mode] + 1) if self._saves() else None
        if plan is None:
            return None
        graph = run_context.session.graph
        if self._view is None or self._view.graph is not graph:
            self._forget_graph()
            self._view = GraphView(graph)
        arguments = run_context.original_args
        run = self._view.run(arguments.fetches, arguments.feed_dict)
        if run not in plan.memory:
            plan.memory[run] = self._read_at(plan, run, self._view)
        return cast("Reading", plan.memory[run])

    def _read_at(self, plan: StepPlan, run: RunView, view: GraphView) -> Reading:
        reading = Reading()
        for name, variable in view.variables.items():
            if plan.interesting(name):
                reading.offered.append(name)
                reading.variables[name] = variable
        for name, tensor in view.tensors.items():
            if plan.interesting(name):
                slices = self._slices.get(name)
                parts = [] if slices is None else slices.parts
                # Not so in a graph in which the name is something else.
                if slices is not None and all(part in view.tensors for part in parts):
                    reading.slices[name] = slices
                    tensors = [tensor, *(view.tensors[part] for part in parts)]
                else:
                    tensors = [tensor]
                self._read_tensor(reading, run, tensors, plan)
        reading.sources = run.sources(reading.repeated.values())
        reading.fetched.update(reading.sources)
        return reading

    def _read_tensor(
        self, reading: Reading, run: RunView, tensors: list[Any], plan: StepPlan
    ) -> None:
        """Adds a tensor, and what else it takes to save it."""
        name = tensors[0].name
        for tensor in tensors:
            if not run.fetches(tensor) and not run.can_repeat(tensor):
                self._say_missing(name, run.obstacle(tensor), plan)
                return
        reading.offered.append(name)
        for tensor in tensors:
            where = reading.fetched if run.fetches(tensor) else reading.repeated
            where[tensor.name] = tensor

    def _say_missing(self, name: str, why: str, plan: StepPlan) -> None:
        asked = name not in self._named_here and any(
            each.has_tensor_name(name) for each in plan.saving
        )
        if not asked:
            logger.debug("%s is not saved: %s", name, why)
        elif name not in self._said:
            self._said.add(name)
            logger.warning("%s is not saved at such a run: %s", name, why)

    # ---- saving

    def _save(self, reading: Reading, values: dict[str, Any], session: Any) -> None:
        variables = self._read(session, reading.variables)
        # Computed from the values of this run, not from what came after it.
        feed = {tensor: values[name] for name, tensor in reading.sources.items()}
        values |= self._read(session, reading.repeated, feed)
        values |= variables
        for name in reading.offered:
            slices = reading.slices.get(name)
            needed = [name, *(() if slices is None else slices.parts)]
            if any(each not in values for each in needed):
                continue
            array = _plain(values[name]) if slices is None else _dense(values, name, slices)
            if array is not None:
                self._offer(name, array)

    def _read(
        self, session: Any, elements: dict[str, Any], feed_dict: dict[Any, Any] | None = None
    ) -> dict[str, Any]:
        values, failures = read_safely(session, elements, feed_dict)
        if failures:
            # They are not asked for again in this session.
            for name in failures:
                del elements[name]
            first = next(iter(failures.values()))
            logger.warning(
                "%d tensors are not saved, %s%s: %s", len(failures),
                ", ".join(list(failures)[:_SHOWN]), ", ..." if len(failures) > _SHOWN else "",
                getattr(first, "message", first),
            )  # fmt: skip
        return values

    # ---- what BaseHook asks

    def _resolve_collections(self) -> None:
        for collection in self.collection_manager.get_collections().values():
            if isinstance(collection, Collection):
                collection.resolve(
                    lambda variable: [str(variable.name)], lambda layer: str(layer.name)
                )

    def _stop_training(self, request: StopRequest) -> None:
        if self._context is not None:
            self._context.request_stop()

    def _detach(self) -> None:
        for optimizer in list(self._optimizers):
            # The methods of its class are in force again.
            vars(optimizer).pop("compute_gradients", None)
            vars(optimizer).pop("apply_gradients", None)
        self._optimizers.clear()
        self._forget_graph()


EstimatorHook = SessionHook


def _is_bias(variable: str) -> bool:
    return "bias" in variable.rsplit("/", 1)[-1]


def _plain(value: Any) -> Array | None:
    """A fetched value as an array; None for bytes that are no text."""
    array = np.asarray(value)
    if array.dtype.kind not in "SO":
        return array
    try:
        texts = [each.decode() for each in array.ravel().tolist()]
    except (UnicodeDecodeError, AttributeError):
        return None
    return np.array(texts, dtype=str).reshape(array.shape)


def _dense(fetched: dict[str, Any], name: str, slices: Slices) -> Array:
    """The gradient of which there are only some rows; rows that come twice add up."""
    values = np.asarray(fetched[name])
    shape = fetched[slices.shape] if isinstance(slices.shape, str) else slices.shape
    wide = np.dtype(np.float64) if values.dtype.kind in "fV" else values.dtype
    dense = np.zeros(tuple(int(each) for each in shape), wide)
    np.add.at(dense, fetched[slices.indices], values.astype(wide))
    return dense.astype(values.dtype)
