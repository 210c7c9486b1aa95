"""The hook for sessions of TensorFlow 1: MonitoredSession and Estimator."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

from smdebug.hook.arguments import inherit_arguments
from smdebug.tensorflow.backend import tf
from smdebug.tensorflow.hook import TensorflowHook
from smdebug.tensorflow.session.adapter import SessionAdapter

if TYPE_CHECKING:
    from smdebug.hook.pipeline import Pipeline

logger = logging.getLogger("smdebug.hook")

# Keras may be installed without TensorFlow; then there are no sessions either.
_SessionRunHook: Any = object if tf is None else tf.compat.v1.train.SessionRunHook


@inherit_arguments
class SessionHook(TensorflowHook, _SessionRunHook):
    """Saves tensors of a graph at runs of a session: a hook of `MonitoredSession` and Estimator.

    A step is one `run`. Names are those of the graph, such as `loss:0`. Tensors that a run computes
    are fetched with it. Variables are read after it, and show the update of that step. Other
    tensors are computed after the run, if that has no side effects.

    Example:
        >>> hook = SessionHook("/tmp/run", include_collections=["gradients"])  # doctest: +SKIP
        >>> optimizer = hook.wrap_optimizer(optimizer)  # doctest: +SKIP
        >>> session = tf.compat.v1.train.MonitoredSession(hooks=[hook])  # doctest: +SKIP
    """

    adapter_class = SessionAdapter

    def _set_pipeline(self, pipeline: Pipeline) -> None:
        super()._set_pipeline(pipeline)
        self._adapter = cast("SessionAdapter", pipeline.adapter)

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Save the gradients that an optimizer computes or applies, and its variables.

        Args:
            optimizer: a `tf.compat.v1.train.Optimizer`; anything else is ignored with a warning.

        Returns:
            The same object.

        Example:
            >>> optimizer = hook.wrap_optimizer(optimizer)  # doctest: +SKIP
        """
        if isinstance(optimizer, tf.compat.v1.train.Optimizer):
            self._adapter.wrap_optimizer(optimizer)
        else:
            logger.warning(
                "wrap_optimizer: gradients are not saved: expected a tf.compat.v1.train.Optimizer, "
                "got %s; pass the optimizer that the graph is built with, or add gradients to the "
                "collection yourself", type(optimizer).__name__,
            )  # fmt: skip
        return optimizer

    # ---- called by a session

    def begin(self) -> None:
        """Find the tensors of the graph, before a session begins."""
        self._adapter.begin(tf.compat.v1.get_default_graph())

    def before_run(self, run_context: Any) -> Any:
        """Return what to fetch with a run."""
        fetches = self._adapter.before_run(run_context)
        return None if fetches is None else tf.compat.v1.train.SessionRunArgs(fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Save a step."""
        self._adapter.after_run(run_context, dict(run_values.results or {}))

    def end(self, session: Any) -> None:
        """Publish what was saved; more sessions may follow."""
        self._adapter.end()
