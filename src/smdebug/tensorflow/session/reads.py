"""The tensors that are read at one run of a session: fetched with it, or computed after it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdebug.tensorflow.backend import tf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from smdebug.hook.plan import StepPlan
    from smdebug.reductions import Array
    from smdebug.tensorflow.session.graph import GraphView, RunView

logger = logging.getLogger("smdebug.hook")

# How many names a message shows.
_SHOWN = 3


class SparseGradient(NamedTuple):
    """The other tensors of a gradient of which only some rows are stored.

    Attributes:
        indices: the name of the tensor with the indices of the rows.
        shape: the shape of the gradient, or the name of the tensor with it.
    """

    indices: str
    shape: tuple[int, ...] | str

    @property
    def tensors(self) -> list[str]:
        """The names of the tensors."""
        return [each for each in self if isinstance(each, str)]


@dataclass
class StepReads:
    """What is read at one kind of run.

    Attributes:
        names: the tensors to save.
        fetched: tensors that are fetched with the user's run, by name.
        repeated: tensors that are computed again after it.
        sources: the tensors, among `fetched`, that these are computed from.
        variables: variables that are read after it.
        sparse: those of the tensors to save that are sparse gradients.
    """

    names: list[str] = field(default_factory=list)
    fetched: dict[str, Any] = field(default_factory=dict)
    repeated: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    sparse: dict[str, SparseGradient] = field(default_factory=dict)

    @classmethod
    def plan(
        cls,
        plan: StepPlan,
        run: RunView,
        view: GraphView,
        sparse: dict[str, SparseGradient],
        report_missing: Callable[[str, str], None],
    ) -> StepReads:
        """Find out what to read at a kind of run.

        Args:
            plan: the plan of the step.
            run: what the run executes.
            view: the graph.
            sparse: the sparse gradients of all graphs.
            report_missing: called with the name of a tensor that cannot be read, and the reason.
        """
        reads = cls()
        for name, variable in view.variables.items():
            if plan.is_relevant(name):
                reads.names.append(name)
                reads.variables[name] = variable
        for name, tensor in view.tensors.items():
            if not plan.is_relevant(name):
                continue
            tensors, gradient = [tensor], sparse.get(name)
            # Another graph may have another tensor of this name.
            if gradient is not None and all(each in view.tensors for each in gradient.tensors):
                reads.sparse[name] = gradient
                tensors += [view.tensors[each] for each in gradient.tensors]
            missing = [each for each in tensors if not run.can_read(each)]
            if missing:
                report_missing(name, run.obstacle(missing[0]))
                continue
            reads.names.append(name)
            for each in tensors:
                target = reads.fetched if run.fetches(each) else reads.repeated
                target[each.name] = each
        reads.sources = run.sources(reads.repeated.values())
        reads.fetched.update(reads.sources)
        return reads

    def arrays(self, session: Any, values: dict[str, Any]) -> Iterator[tuple[str, Array]]:
        """Yield the tensors to save.

        Args:
            session: the session, after the user's run.
            values: what was fetched with the run, by name.
        """
        variables = _read(session, self.variables)
        # Computed from the values of this run, not from what came after it.
        feed = {tensor: values[name] for name, tensor in self.sources.items()}
        values = {**values, **_read(session, self.repeated, feed), **variables}
        for name in self.names:
            gradient = self.sparse.get(name)
            needed = [name, *(() if gradient is None else gradient.tensors)]
            if any(each not in values for each in needed):
                continue
            if gradient is not None:
                yield name, _dense(values, name, gradient)
                continue
            array = _decoded(values[name])
            if array is not None:
                yield name, array


def _read(
    session: Any, elements: dict[str, Any], feed_dict: dict[Any, Any] | None = None
) -> dict[str, Any]:
    """Run a session; tensors that cannot be read are logged, and removed from the elements."""
    values: dict[str, Any] = {}
    failures: dict[str, Exception] = {}
    waiting = [list(elements)] if elements else []
    while waiting:
        names = waiting.pop()
        try:
            values.update(session.run({name: elements[name] for name in names}, feed_dict))
        except (tf.errors.OpError, TypeError, ValueError) as error:
            if len(names) == 1:
                failures[names[0]] = error
            else:
                # By halves: of thousands only a few fail.
                middle = len(names) // 2
                waiting += [names[:middle], names[middle:]]
    if failures:
        for name in failures:
            del elements[name]
        first = next(iter(failures.values()))
        logger.warning(
            "%d tensors are not saved, %s%s: %s", len(failures),
            ", ".join(list(failures)[:_SHOWN]), ", ..." if len(failures) > _SHOWN else "",
            getattr(first, "message", first),
        )  # fmt: skip
    return values


def _decoded(value: Any) -> Array | None:
    """Return a fetched value as an array; None for bytes that are not UTF-8."""
    array = np.asarray(value)
    if array.dtype.kind not in "SO":
        return array
    try:
        strings = [each.decode() for each in array.ravel().tolist()]
    except (UnicodeDecodeError, AttributeError):
        return None
    return np.array(strings, dtype=str).reshape(array.shape)


def _dense(values: dict[str, Any], name: str, gradient: SparseGradient) -> Array:
    """Return a sparse gradient as a dense one; rows with the same index add up."""
    rows = np.asarray(values[name])
    shape = values[gradient.shape] if isinstance(gradient.shape, str) else gradient.shape
    wide = np.dtype(np.float64) if rows.dtype.kind in "fV" else rows.dtype
    dense = np.zeros(tuple(int(each) for each in shape), wide)
    np.add.at(dense, values[gradient.indices], rows.astype(wide))
    return dense.astype(rows.dtype)
