"""What one run of a session executes, and which tensors can be had without changing that.

A tensor that the run computes anyway is fetched with it, which adds nothing to what is executed.
Any other tensor is computed after the run, from values of that very run, and only if everything it
needs has no effect but its result. A failure there does not reach the run of the user.

TensorFlow computes a chain of operations at once, with other roundings, where nobody looks inside.
A tensor in the middle of such a chain is therefore also computed after the run: fetched with it, it
would change the last bits of what is trained.
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

# TensorFlow calls them stateful, or hands them a reference; they change nothing.
_READERS = frozenset({
    "VarHandleOp", "ReadVariableOp", "VariableV2", "Variable", "VariableShape",
    "VarIsInitializedOp", "IsVariableInitialized", "ResourceGather", "ResourceGatherNd",
})  # fmt: skip
# TensorFlow calls them stateless; they cannot be run, or not without a frame around them, or they
# run code or read files.
_NEVER_AGAIN = frozenset({
    "Placeholder", "PlaceholderV2", "PyFuncStateless", "ReadFile", "MatchingFiles",
    "Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit",
    "NextIteration", "RefNextIteration", "LoopCond",
})  # fmt: skip
_SWITCHES, _MERGES = ("Switch", "RefSwitch"), ("Merge", "RefMerge")
_ENTRIES = ("Enter", "RefEnter")
_EXITS, _BACK_EDGES = ("Exit", "RefExit"), ("NextIteration", "RefNextIteration")
# Deeper than anybody goes: counting ends there whatever a graph looks like.
_DEEPEST = 100
_PLACEHOLDERS = ("Placeholder", "PlaceholderV2")
# They look at what a tensor is like, and are often gone before a run begins.
_SHAPES = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")
# What they are given is computed by itself: the outputs of most models.
_NEVER_JOINED = frozenset({
    "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits", "Softmax",
    "LogSoftmax", "ArgMax", "MaxPool", "AvgPool",
})  # fmt: skip
# What they return is a message for TensorBoard.
_SUMMARIES = ("Summary", "SummaryV2")


class GraphView:
    """A graph that sessions run: no operation is added to it any more.

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
        """Returns what a call of `session.run` with these arguments executes; found out once."""
        fetched, _ = self._elements(fetches)
        given, all_given = self._elements(tuple(feed_dict or ()))
        fed = frozenset(each.name for each in given)
        if not all_given:
            # What is behind a tensor that is fed is not executed: without knowing it, nothing is.
            fetched = []
        key = (tuple(each.name for each in fetched), fed)
        if key not in self._runs:
            self._runs[key] = RunView(self, fetched, fed)
        return self._runs[key]

    def can_fetch(self, tensor: Any) -> bool:
        """Whether a run that computes this tensor can also return it."""
        if not _has_values(tensor.dtype) or not self.graph.is_fetchable(tensor):
            return False
        if self.in_a_branch(tensor):
            return False
        # Its memory is the variable's, which the same run may write to.
        return tensor.op.type != "Identity" or not _is_reference(tensor.op.inputs[0])

    def in_a_branch(self, tensor: Any) -> bool:
        """Whether the tensor may have no value, or many: a branch or a loop is around it."""
        return self._depths.get(tensor.op, 0) > 0

    def _elements(self, structure: Any) -> tuple[list[Any], bool]:
        """The tensors and operations in what `session.run` takes: names, variables, structures.

        Returns:
            Those that are known, and whether these are all.
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
        fetched: the tensors and operations that the user asked for.
        fed: the names of the tensors that the user gave values.
    """

    def __init__(self, view: GraphView, fetched: Iterable[Any], fed: frozenset[str]) -> None:
        self._view = view
        self._fed = fed
        # What is looked at anyway, and what was found out.
        self._free = dict.fromkeys([*(each.name for each in fetched), *fed], True)
        self._repeatable: dict[Any, bool] = {}
        self._executed = self._with_ancestors(
            each.op if isinstance(each, tf.Tensor) else each
            for each in fetched
            if each.name not in fed
        )

    def fetches(self, tensor: Any) -> bool:
        """Whether the tensor is to be fetched with the run."""
        return self._has(tensor) and (self._is_free(tensor) or not self.can_repeat(tensor))

    def can_repeat(self, tensor: Any) -> bool:
        """Whether the tensor can be computed again after the run, without any other effect."""
        return bool(self._view.graph.is_fetchable(tensor)) and self._can_repeat(tensor.op)

    def sources(self, tensors: Iterable[Any]) -> dict[str, Any]:
        """Returns the tensors of the run from which these can be computed again, by name."""
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
        """Says why a tensor can neither be fetched nor computed again."""
        if not self._view.graph.is_fetchable(tensor) or self._view.in_a_branch(tensor):
            return "it is inside of a loop or of a branch that may not be taken"
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
            "and which does more than to compute a result"
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
        """The operations that are executed again when this one is."""
        needed = [each.op for each in operation.inputs if not self._is_source(each)]
        return needed + [each for each in operation.control_inputs if not self._is_fed(each)]

    def _has(self, tensor: Any) -> bool:
        """Whether the run can return this tensor without executing anything more."""
        if tensor.name in self._fed:
            return True
        return tensor.op in self._executed and self._view.can_fetch(tensor)

    def _is_source(self, tensor: Any) -> bool:
        feedable = self._view.graph.is_feedable(tensor)
        return feedable and self._has(tensor) and self._is_free(tensor)

    def _is_free(self, tensor: Any) -> bool:
        """Whether fetching a tensor of the run leaves the rest as it is computed without that."""
        if tensor.name not in self._free:
            self._free[tensor.name] = not self._is_passed_on(tensor)
        return self._free[tensor.name]

    def _is_passed_on(self, tensor: Any) -> bool:
        """Whether a tensor is only a step between two operations, which may become one."""
        operation = tensor.op
        if operation.type in _READERS or not operation.inputs or operation.control_inputs:
            return False
        # Computed again, it would have to be from something that may have changed.
        if not _may_run_again(operation) or not all(self._has(each) for each in operation.inputs):
            return False
        users = [each for each in tensor.consumers() if each in self._executed]
        users = [each for each in users if each.type not in _SHAPES]
        if any(each.type in _NEVER_JOINED or not _may_run_again(each) for each in users):
            return False
        return len(users) < 2

    def _is_fed(self, operation: Any) -> bool:
        # Of a placeholder that is fed nothing is left, not even what waits for it.
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
    """Returns the variables that a graph lists, each once."""
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


def read_safely(
    session: Any, elements: dict[str, Any], feed_dict: dict[Any, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Runs a session for what must not fail: what cannot be read is left out.

    Returns:
        The values by name, and the failures by name.
    """
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
    return values, failures


def _may_run_again(operation: Any) -> bool:
    """Whether an operation by itself does nothing but compute a result."""
    if operation.type in _READERS:
        return True
    definition = operation.op_def
    if operation.type in _NEVER_AGAIN or definition is None or definition.is_stateful:
        return False
    # One that takes a reference may write to it.
    if any(each.is_ref for each in (*definition.input_arg, *definition.output_arg)):
        return False
    # Behind such tensors are queues, iterators, tables.
    tensors = (*operation.inputs, *operation.outputs)
    return not any(each.dtype in (tf.resource, tf.variant) for each in tensors)


def _is_reference(tensor: Any) -> bool:
    return bool(tensor.dtype != tensor.dtype.base_dtype)


@functools.cache
def _has_values(dtype: Any) -> bool:
    """Whether a run can hold tensors of this type."""
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
    """In how many loops, and branches that may not be taken, an operation is.

    TensorFlow marks the operations of a branch itself, but not those of its gradient, and not
    those through which values enter a loop.
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
    # What comes back around a loop was inside of it already.
    before = [each for each in (*inputs, *operation.control_inputs)
              if each.type not in _BACK_EDGES]  # fmt: skip
    depth = max((depths[each] for each in before), default=0)
    if operation.type in (*_SWITCHES, *_ENTRIES):
        return min(depth + 1, _DEEPEST)
    if operation.type in _EXITS:
        # Out of the loop, and of the choice to leave it.
        depth -= 2
    elif operation.type in _MERGES and not any(each.type in _BACK_EDGES for each in inputs):
        depth -= 1
    return max(0, depth)
