"""Saves tensors of a graph of TensorFlow 1: MonitoredSession and Estimator."""

from __future__ import annotations

import functools
import logging
import weakref
from typing import TYPE_CHECKING, Any

from smdebug.config.collection import CollectionKeys
from smdebug.exceptions import SMDebugRuntimeError
from smdebug.tensorflow.adapter import TensorflowAdapter
from smdebug.tensorflow.backend import is_sparse, tf
from smdebug.tensorflow.collection import Collection
from smdebug.tensorflow.naming import SESSION_COLLECTIONS
from smdebug.tensorflow.session.graph import GraphView
from smdebug.tensorflow.session.reads import SparseGradient, StepReads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from smdebug.config.collection_manager import CollectionManager
    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import StepCache, StepPlan
    from smdebug.storage.stop_requests import StopRequest

logger = logging.getLogger("smdebug.hook")

_KEYS = CollectionKeys


class SessionAdapter(TensorflowAdapter):
    """Makes every run of a session a step, and names the tensors of the graph."""

    default_collections = SESSION_COLLECTIONS

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        if tf is None:
            raise SMDebugRuntimeError(
                "SessionHook requires TensorFlow, which is not installed; install it, or use a "
                "KerasHook, which works without it"
            )
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        # Names, not variables: these would keep their graph alive.
        self._differentiated: set[str] = set()
        self._sparse: dict[str, SparseGradient] = {}
        self._view: GraphView | None = None
        self._reads: StepCache[StepReads] = pipeline.new_cache()
        # What is read at the present run of each session.
        self._running: weakref.WeakKeyDictionary[Any, StepReads | None]
        self._running = weakref.WeakKeyDictionary()
        # The context of the present run, which can stop the session.
        self._context: Any = None
        # Names that the adapter added to collections, not the user.
        self._added: set[str] = set()

    # ---- the graph

    def wrap_optimizer(self, optimizer: Any) -> None:
        """Observe the gradients that an optimizer computes or applies."""
        if self.pipeline.active and optimizer not in self._optimizers:
            self._optimizers.add(optimizer)
            optimizer.compute_gradients = self._after_compute(optimizer.compute_gradients)
            optimizer.apply_gradients = self._before_apply(optimizer.apply_gradients)

    def _after_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compute)
        def compute_gradients(*args: Any, **kwargs: Any) -> Any:
            pairs = compute(*args, **kwargs)
            with self.pipeline.guarded:
                self._add_gradients(pairs)
            return pairs

        return compute_gradients

    def _before_apply(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(apply)
        def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            # An iterator such as zip can be read only once.
            pairs = tuple(grads_and_vars)
            with self.pipeline.guarded:
                new = [each for each in pairs if each[1].name not in self._differentiated]
                self._add_gradients(new)
            return apply(pairs, *args, **kwargs)

        return apply_gradients

    def _add_gradients(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        if not self.pipeline.active or tf.executing_eagerly():
            return
        for gradient, variable in pairs:
            if gradient is None:
                continue
            self._differentiated.add(variable.name)
            if is_sparse(gradient):
                known = variable.shape.is_fully_defined()
                shape = tuple(variable.shape) if known else gradient.dense_shape.name
                self._sparse[gradient.name] = SparseGradient(gradient.indices.name, shape)
            self._add_names(_KEYS.GRADIENTS, [gradient.name])

    def begin(self, graph: Any) -> None:
        """Add the tensors of a graph to the collections, before a session begins."""
        if not self.pipeline.active:
            logger.warning(
                "this hook saves nothing: it was closed, or created in another process; create one "
                "in the process that trains"
            )
            return
        with self.pipeline.guarded:
            self._forget_graph()
            keys = tf.compat.v1.GraphKeys
            trainable = [each.name for each in graph.get_collection(keys.TRAINABLE_VARIABLES)]
            self._add_names(_KEYS.BIASES, [each for each in trainable if _is_bias(each)])
            self._add_names(_KEYS.WEIGHTS, [each for each in trainable if not _is_bias(each)])
            self._add_names(_KEYS.LOSSES, [each.name for each in graph.get_collection(keys.LOSSES)])
            for optimizer in self._optimizers:
                states = [each.name for each in optimizer.variables()]
                self._add_names(_KEYS.OPTIMIZER_VARIABLES, states)
        # Not guarded: an invalid configuration always raises.
        self.pipeline.make_ready()

    def _add_names(self, collection: str, names: Iterable[str]) -> None:
        known = self.pipeline.collections.manager.get(collection)
        new = [name for name in names if not known.has_tensor_name(name)]
        if new:
            self._added.update(new)
            known.add(new)

    def _forget_graph(self) -> None:
        self._view = None
        self.pipeline.invalidate()

    # ---- runs

    def before_run(self, context: Any) -> dict[str, Any] | None:
        """Return the tensors to fetch with a run, by name; None for nothing."""
        if not self.pipeline.active:
            return None
        self._context = context
        if self.pipeline.stop_if_requested():
            return None
        self.pipeline.errors.raise_pending()
        self.pipeline.make_ready()
        reads = None
        with self.pipeline.guarded:
            # Per session: an evaluation with this hook may run before a training run has ended.
            reads = self._running[context.session] = self._next_reads(context)
        return None if reads is None or not reads.fetched else reads.fetched

    def after_run(self, context: Any, results: dict[str, Any]) -> None:
        """Save a step.

        Args:
            context: the context of the run.
            results: the values of the fetched tensors, by name.
        """
        if not self.pipeline.active:
            return
        # Begun only now: a run that failed at the end of the data is not a step.
        self._context = context
        capture = self.pipeline.begin_step()
        reads = self._running.pop(context.session, None)
        if capture is not None and reads is not None:
            with self.pipeline.guarded:
                for name, array in reads.arrays(context.session, results):
                    self.pipeline.offer(name, array)
        # Not only before the next run: the session would then have begun it.
        self.pipeline.stop_if_requested()
        self._context = None

    def end(self) -> None:
        """Publish what was saved at the end of a session; more sessions may follow."""
        if self.pipeline.active:
            self._differentiated.clear()
            self._forget_graph()
            self.pipeline.flush()

    def _next_reads(self, context: Any) -> StepReads | None:
        """Return what is read at the step to come; None when nothing is saved at it."""
        pipeline = self.pipeline
        if not pipeline.saving():
            return None
        plan = pipeline.plan.at(pipeline.steps.mode, pipeline.steps.mode_step + 1)
        if plan is None:
            return None
        graph = context.session.graph
        if self._view is None or self._view.graph is not graph:
            self._forget_graph()
            self._view = GraphView(graph)
        view, arguments = self._view, context.original_args
        run = view.run(arguments.fetches, arguments.feed_dict)

        def report_missing(name: str, reason: str) -> None:
            self._report_missing(plan, name, reason)

        return self._reads.get(
            plan, run, lambda: StepReads.plan(plan, run, view, self._sparse, report_missing)
        )

    def _report_missing(self, plan: StepPlan, name: str, reason: str) -> None:
        by_user = name not in self._added and any(
            each.has_tensor_name(name) for each in plan.saving
        )
        if by_user:
            self.warn_once(f"{name} is not saved at such a run: {reason}")
        else:
            logger.debug("%s is not saved: %s", name, reason)

    # ---- called by the pipeline

    def resolve(self, collections: CollectionManager) -> None:
        for collection in collections.get_collections().values():
            if isinstance(collection, Collection):
                collection.resolve(
                    lambda variable: [str(variable.name)], lambda layer: str(layer.name)
                )

    def stop_training(self, request: StopRequest) -> None:
        if self._context is not None:
            self._context.request_stop()

    def detach(self) -> None:
        for optimizer in list(self._optimizers):
            # The methods of its class are in effect again.
            vars(optimizer).pop("compute_gradients", None)
            vars(optimizer).pop("apply_gradients", None)
        self._optimizers.clear()
        self._forget_graph()


def _is_bias(variable: str) -> bool:
    return "bias" in variable.rsplit("/", 1)[-1]
