"""What one run of a session executes, and which tensors can be read without changing that.

A tensor that the run computes anyway is fetched with it, which executes nothing more. Any other
tensor is computed after the run, from values of the same run, and only if all operations it needs
are free of side effects. A failure there does not reach the user's run.

TensorFlow fuses a chain of operations, which rounds differently, where nothing reads the tensors
between them. A tensor inside such a chain is therefore also computed after the run: fetching it
with the run would change the last bits of the trained weights.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from smdebug.exceptions import SMDebugTypeError
from smdebug.storage.format.dtypes import check_dtype
from smdebug.tensorflow.backend import tf

if TYPE_CHECKING:
    from collections.abc import Iterable

# Stateful for TensorFlow, or with a reference as input, but without side effects.
_READERS = frozenset({
    "VarHandleOp", "ReadVariableOp", "VariableV2", "Variable", "VariableShape",
    "VarIsInitializedOp", "IsVariableInitialized", "ResourceGather", "ResourceGatherNd",
})  # fmt: skip
# Stateless for TensorFlow, but they cannot run, or only in the frame of a loop, or they run Python
# or read files.
_NEVER_AGAIN = frozenset({
    "Placeholder", "PlaceholderV2", "PyFuncStateless", "ReadFile", "MatchingFiles",
    "Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit",
    "NextIteration", "RefNextIteration", "LoopCond",
})  # fmt: skip
_SWITCHES, _MERGES = ("Switch", "RefSwitch"), ("Merge", "RefMerge")
_ENTRIES = ("Enter", "RefEnter")
_EXITS, _BACK_EDGES = ("Exit", "RefExit"), ("NextIteration", "RefNextIteration")
# A limit that no real graph reaches, so that counting ends on any graph.
_DEEPEST = 100
_PLACEHOLDERS = ("Placeholder", "PlaceholderV2")
# Consumers of a shape only, which the graph optimizer often removes before a run.
_SHAPES = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")
# Operations that are not fused with their inputs, the outputs of most models.
_NEVER_FUSED = frozenset({
    "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits", "Softmax",
    "LogSoftmax", "ArgMax", "MaxPool", "AvgPool",
})  # fmt: skip
# Their outputs are messages for TensorBoard.
_SUMMARIES = ("Summary", "SummaryV2")


class GraphView:
    """A graph that sessions run: it is finalized.

    Args:
        graph: the graph.

    Attributes:
        graph: the graph.
        variables: its variables by name.
        tensors: its other tensors that can be saved, by name.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.variables: dict[str, Any] = {each.name: each for each in graph_variables(graph)}
        operations = graph.get_operations()
        self.tensors: dict[str, Any] = {
            tensor.name: tensor
            for operation in operations
            if not operation.type.endswith(_SUMMARIES)
            for tensor in operation.outputs
            if _has_values(tensor.dtype) and tensor.name not in self.variables
        }
        self._depths = _branch_depths(operations)
        self._runs: dict[object, RunView] = {}

    def run(self, fetches: Any, feed_dict: Any) -> RunView:
        """Return what a call of `session.run` with these arguments executes; computed once."""
        fetched, _ = self._elements(fetches)
        given, all_given = self._elements(tuple(feed_dict or ()))
        fed = frozenset(each.name for each in given)
        if not all_given:
            # Ancestors of a fed tensor are not executed: with unknown feeds nothing is certain.
            fetched = []
        key = (tuple(each.name for each in fetched), fed)
        if key not in self._runs:
            self._runs[key] = RunView(self, fetched, fed)
        return self._runs[key]

    def can_fetch(self, tensor: Any) -> bool:
        """Return whether a run that computes this tensor can also return it."""
        if not _has_values(tensor.dtype) or not self.graph.is_fetchable(tensor):
            return False
        if self.in_a_branch(tensor):
            return False
        # It shares the memory of the variable, which the same run may write to.
        return tensor.op.type != "Identity" or not _is_reference(tensor.op.inputs[0])

    def in_a_branch(self, tensor: Any) -> bool:
        """Return whether a branch or a loop surrounds the tensor: it may have no value, or many."""
        return self._depths.get(tensor.op, 0) > 0

    def _elements(self, structure: Any) -> tuple[list[Any], bool]:
        """Return the tensors and operations in an argument of `session.run`.

        Returns:
            Those that the graph has, and whether these are all.
        """
        found, complete = [], True
        try:
            leaves = tf.nest.flatten(structure, expand_composites=True)
        except (TypeError, ValueError):
            return [], False
        for leaf in leaves:
            try:
                found.append(self.graph.as_graph_element(leaf))
            except (TypeError, ValueError, KeyError):
                complete = False
        return found, complete


class RunView:
    """What one kind of run executes.

    Args:
        view: the graph.
        fetched: the tensors and operations that the user fetches.
        fed: the names of the tensors that the user feeds.
    """

    def __init__(self, view: GraphView, fetched: Iterable[Any], fed: frozenset[str]) -> None:
        self._view = view
        self._fed = fed
        # Whether fetching a tensor leaves the run as it is, by name.
        self._free = dict.fromkeys([*(each.name for each in fetched), *fed], True)
        self._repeatable: dict[Any, bool] = {}
        self._executed = self._with_ancestors(
            each.op if isinstance(each, tf.Tensor) else each
            for each in fetched
            if each.name not in fed
        )

    def fetches(self, tensor: Any) -> bool:
        """Return whether the tensor is to be fetched with the run."""
        return self._has(tensor) and (self._is_free(tensor) or not self.can_repeat(tensor))

    def can_read(self, tensor: Any) -> bool:
        """Return whether the tensor can be fetched with the run, or computed again after it."""
        return self.fetches(tensor) or self.can_repeat(tensor)

    def can_repeat(self, tensor: Any) -> bool:
        """Return whether the tensor can be computed again after the run without side effects."""
        return bool(self._view.graph.is_fetchable(tensor)) and self._can_repeat(tensor.op)

    def sources(self, tensors: Iterable[Any]) -> dict[str, Any]:
        """Return the tensors of the run from which these can be computed again, by name."""
        found: dict[str, Any] = {}
        waiting = [tensor.op for tensor in tensors]
        seen = set(waiting)
        while waiting:
            operation = waiting.pop()
            found.update({each.name: each for each in operation.inputs if self._is_source(each)})
            for needed in self._needs(operation):
                if needed not in seen:
                    seen.add(needed)
                    waiting.append(needed)
        return found

    def obstacle(self, tensor: Any) -> str:
        """Return why a tensor can neither be fetched nor computed again."""
        if not self._view.graph.is_fetchable(tensor) or self._view.in_a_branch(tensor):
            return "it is inside a loop or a branch that may not be taken"
        operation = tensor.op
        while _may_run_again(operation):
            blocked = [each for each in self._needs(operation) if not self._can_repeat(each)]
            if not blocked:
                return "TensorFlow does not return such a tensor"
            operation = blocked[0]
        if operation.type in _PLACEHOLDERS:
            return f"it depends on the placeholder {operation.name}, which is not fed"
        return (
            f"it depends on {operation.name} ({operation.type}), which the run does not execute "
            "and which has side effects"
        )

    def _can_repeat(self, operation: Any) -> bool:
        known = self._repeatable
        waiting = [operation]
        while waiting:
            current = waiting[-1]
            if current in known or not _may_run_again(current):
                known.setdefault(current, False)
                waiting.pop()
                continue
            needed = self._needs(current)
            unknown = [each for each in needed if each not in known]
            if unknown:
                waiting.extend(unknown)
            else:
                known[current] = all(known[each] for each in needed)
                waiting.pop()
        return known[operation]

    def _needs(self, operation: Any) -> list[Any]:
        """Return the operations that are executed again when this one is."""
        needed = [each.op for each in operation.inputs if not self._is_source(each)]
        return needed + [each for each in operation.control_inputs if not self._is_fed(each)]

    def _has(self, tensor: Any) -> bool:
        """Return whether the run can return this tensor without executing anything more."""
        if tensor.name in self._fed:
            return True
        return tensor.op in self._executed and self._view.can_fetch(tensor)

    def _is_source(self, tensor: Any) -> bool:
        feedable = self._view.graph.is_feedable(tensor)
        return feedable and self._has(tensor) and self._is_free(tensor)

    def _is_free(self, tensor: Any) -> bool:
        """Return whether fetching a tensor of the run leaves all other values as they are."""
        if tensor.name not in self._free:
            self._free[tensor.name] = not self._may_be_fused(tensor)
        return self._free[tensor.name]

    def _may_be_fused(self, tensor: Any) -> bool:
        """Return whether a tensor only connects two operations that TensorFlow may fuse."""
        operation = tensor.op
        if operation.type in _READERS or not operation.inputs or operation.control_inputs:
            return False
        # If it is computed again, its inputs must still have the same values.
        if not _may_run_again(operation) or not all(self._has(each) for each in operation.inputs):
            return False
        users = [each for each in tensor.consumers() if each in self._executed]
        users = [each for each in users if each.type not in _SHAPES]
        if any(each.type in _NEVER_FUSED or not _may_run_again(each) for each in users):
            return False
        return len(users) < 2

    def _is_fed(self, operation: Any) -> bool:
        # A fed placeholder is removed, with the control dependencies on it.
        return operation.type in _PLACEHOLDERS and operation.outputs[0].name in self._fed

    def _with_ancestors(self, fetched: Iterable[Any]) -> set[Any]:
        waiting = list(fetched)
        executed = set(waiting)
        while waiting:
            operation = waiting.pop()
            needed = [each.op for each in operation.inputs if each.name not in self._fed]
            needed += [each for each in operation.control_inputs if not self._is_fed(each)]
            for each in needed:
                if each not in executed:
                    executed.add(each)
                    waiting.append(each)
        return executed


def graph_variables(graph: Any) -> list[Any]:
    """Return the variables in the collections of a graph, each once."""
    keys = tf.compat.v1.GraphKeys
    listed = [
        variable
        for key in (
            keys.TRAINABLE_VARIABLES, keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES,
            keys.MODEL_VARIABLES, keys.METRIC_VARIABLES,
        )
        for variable in graph.get_collection(key)
        if isinstance(variable, tf.Variable)
    ]  # fmt: skip
    return list({variable.name: variable for variable in listed}.values())


def _may_run_again(operation: Any) -> bool:
    """Return whether an operation by itself has no side effects."""
    if operation.type in _READERS:
        return True
    definition = operation.op_def
    if operation.type in _NEVER_AGAIN or definition is None or definition.is_stateful:
        return False
    # An operation with a reference as input may write to it.
    if any(each.is_ref for each in (*definition.input_arg, *definition.output_arg)):
        return False
    # Such tensors are handles of queues, iterators and tables.
    tensors = (*operation.inputs, *operation.outputs)
    return not any(each.dtype in (tf.resource, tf.variant) for each in tensors)


def _is_reference(tensor: Any) -> bool:
    return bool(tensor.dtype != tensor.dtype.base_dtype)


@functools.cache
def _has_values(dtype: Any) -> bool:
    """Return whether tensors of this type can be saved."""
    if dtype == tf.string:
        return True
    if dtype in (tf.resource, tf.variant) or dtype != dtype.base_dtype:
        return False
    try:
        check_dtype(np.dtype(dtype.as_numpy_dtype))
    except (SMDebugTypeError, TypeError):
        return False
    return True


def _branch_depths(operations: list[Any]) -> dict[Any, int]:
    """Return in how many loops, and branches that may not be taken, each operation is.

    TensorFlow marks the operations of a branch, but not those of its gradient, and not those
    through which values enter a loop.
    """
    depths: dict[Any, int] = defaultdict(int)
    changed = any(operation.type in (*_SWITCHES, *_ENTRIES) for operation in operations)
    while changed:
        changed = False
        for operation in operations:
            depth = _branch_depth(operation, depths)
            if depth != depths[operation]:
                depths[operation] = depth
                changed = True
    return depths


def _branch_depth(operation: Any, depths: dict[Any, int]) -> int:
    inputs = [each.op for each in operation.inputs]
    # Ignore values of the previous iteration: they were inside the loop already.
    before = [each for each in (*inputs, *operation.control_inputs)
              if each.type not in _BACK_EDGES]  # fmt: skip
    depth = max((depths[each] for each in before), default=0)
    if operation.type in (*_SWITCHES, *_ENTRIES):
        return min(depth + 1, _DEEPEST)
    if operation.type in _EXITS:
        # It leaves the loop, and the switch that ends it.
        depth -= 2
    elif operation.type in _MERGES and not any(each.type in _BACK_EDGES for each in inputs):
        depth -= 1
    return max(0, depth)
