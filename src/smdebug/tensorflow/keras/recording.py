"""Records the tensors inside one step of a Keras model: layers, gradients, data.

While a step is traced, the recorded tensors are symbolic: they become additional results of the
traced function. Where Keras runs eagerly they have values.
"""

from __future__ import annotations

import functools
import re
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from smdebug.tensorflow.backend import (
    flatten,
    is_keras_3,
    is_sparse,
    is_tensor,
    keras,
    keras_backend,
    tf,
)
from smdebug.tensorflow.naming import numbered
from smdebug.tensorflow.tensors import is_symbolic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from smdebug.tensorflow.keras.layers import ModelNames

_INPUTS, _OUTPUTS = "inputs", "outputs"
# Operations whose effects cannot be undone: Python, tables, queues, files. TensorLists have none.
_EFFECTS = re.compile(
    "PyFunc|LookupTable|HashTable|Queue|(?<!TensorList)Stack|Barrier|Summary|WriteFile|Print"
)


class _Active(threading.local):
    def __init__(self) -> None:
        self.recordings: list[Recording] = []


# Per thread: replicas of a model are traced in separate threads.
_active = _Active()
# For each class of layers: how many contexts record it, and its own `__call__`.
_recorded: dict[Any, tuple[int, Any]] = {}
_lock = threading.Lock()


class Recording:
    """The tensors of one step of one replica.

    Args:
        model: the model; the outputs of its own call are the predictions.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._eager = keras_backend() != "tensorflow" or tf.executing_eagerly()
        self._graph = None if self._eager else tf.compat.v1.get_default_graph()
        self._data: dict[str, list[Any]] = {}
        self._layers: dict[tuple[int, str], list[Any]] = {}
        self._called: dict[int, Any] = {}
        self._in_loop: set[int] = set()
        self._gradients: list[tuple[Any, Any, Any]] = []
        self._depth = self._loops = 0
        self._batch_seen = False

    @contextmanager
    def active(self) -> Iterator[None]:
        """Record what this thread does."""
        _active.recordings.append(self)
        try:
            yield
        finally:
            # Not always the last: tapes may be exited in any order.
            _active.recordings.remove(self)

    def record_batch(self, data: Any) -> None:
        """Record the inputs and labels of a batch."""
        self._batch_seen = True
        try:
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        except ValueError:
            # A custom step may take any structure.
            x, y = data, None
        self._add_data("inputs", x)
        self._add_data("labels", y)

    def record_call(self, layer: Any, kind: str, value: Any) -> None:
        """Record the inputs or outputs of a layer."""
        if self._eager and keras_backend() == "tensorflow" and not tf.executing_eagerly():
            # A layer is being built, or a function inside the step is traced.
            return
        if layer is self._model:
            if kind == _OUTPUTS:
                self._add_data("predictions", value)
            elif not self._batch_seen:
                self._add_data("inputs", value)
            return
        recurrent = isinstance(layer, keras.layers.RNN)
        if recurrent and kind == _OUTPUTS:
            self._loops -= 1
        # A recurrent layer calls its cells once per time step.
        hidden = self._loops > 0
        if recurrent and kind == _INPUTS:
            self._loops += 1
        if hidden:
            return
        self._called[id(layer)] = layer
        if any(is_tensor(each) and not self._is_returnable(each) for each in flatten(value)):
            # Called in a loop: its calls outside the loop alone would be misleading.
            self._in_loop.add(id(layer))
        self._layers.setdefault((id(layer), kind), []).extend(self._returnable(value))

    @contextmanager
    def applying(self, optimizer: Any, pairs: Iterable[tuple[Any, Any]]) -> Iterator[None]:
        """Record the gradients passed to an optimizer, but not to one that it wraps."""
        if not self._depth:
            scale = _scale(optimizer)
            self._gradients += [(gradient, variable, scale) for gradient, variable in pairs]
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def tensors(self, names: ModelNames, wanted: Callable[[str], bool]) -> dict[str, Any]:
        """Return the recorded tensors by name.

        Operations that this adds come after all operations of the step.

        Args:
            names: the names in the model.
            wanted: returns whether a tensor is ever saved.
        """
        found: dict[str, Any] = {}
        for kind in ("inputs", "labels"):
            self._add_named(found, kind, self._data.get(kind, []))
        for (layer, kind), values in self._layers.items():
            name = names.layer(self._called[layer])
            if name is not None and layer not in self._in_loop:
                self._add_named(found, f"{name}/{kind}", values)
        # In execution order.
        self._add_named(found, "predictions", self._data.get("predictions", []))
        result = {name: value for name, value in found.items() if wanted(name)}
        for gradient, variable, scale in self._gradients:
            name = names.gradient(variable)
            if name is None or gradient is None or not wanted(name):
                continue
            # A sparse gradient inside another function cannot be made dense here.
            if self._is_returnable(gradient.values if is_sparse(gradient) else gradient):
                result[_unused(name, result)] = _snapshot(_dense(gradient, scale))
        return result

    @staticmethod
    def _add_named(found: dict[str, Any], name: str, values: list[Any]) -> None:
        found.update(zip(numbered(name, len(values)), values, strict=True))

    def variables(self) -> list[tuple[Any, Any]]:
        """Return the handle and the type of each variable that the step reads or writes."""
        if self._graph is None:
            return []
        handles = [outside for outside, _ in self._graph.captures if outside.dtype == tf.resource]
        typed = [(each, _variable_dtype(each)) for each in handles]
        return [(handle, dtype) for handle, dtype in typed if dtype is not None]

    def has_own_random_state(self) -> bool:
        """Return whether another function would draw other random numbers than this step."""
        # Random operations whose state is a variable or an argument have no such attribute.
        return any("seed2" in node.attr for node in self._nodes())

    def has_other_effects(self) -> bool:
        """Return whether the step changes more than variables, so that it must not run twice."""
        return any(_EFFECTS.search(node.op) for node in self._nodes())

    def _nodes(self) -> Iterator[Any]:
        if self._graph is not None:
            definition = self._graph.as_graph_def()
            yield from definition.node
            for function in definition.library.function:
                yield from function.node_def

    def _add_data(self, kind: str, value: Any) -> None:
        self._data.setdefault(kind, []).extend(self._returnable(value))

    def _returnable(self, value: Any) -> list[Any]:
        """Return those of the tensors in a structure that the step can return."""
        return [_snapshot(each) for each in flatten(value) if self._is_returnable(each)]

    def _is_returnable(self, value: Any) -> bool:
        if not is_tensor(value):
            return False
        if self._eager:
            return not is_symbolic(value)
        # A tensor of a loop, or of a function inside the step, exists only there.
        return getattr(value, "graph", None) is self._graph


def _snapshot(value: Any) -> Any:
    # PyTorch may write to a tensor in place.
    return value.detach().clone() if keras_backend() == "torch" else value


def _unused(name: str, used: dict[str, Any]) -> str:
    """Return a name for another gradient of a variable in one step."""
    number, unused = 0, name
    while unused in used:
        number += 1
        unused = f"{name}_{number}"
    return unused


def _variable_dtype(handle: Any) -> Any:
    """Return the type of the variable of a handle; None if it is not the handle of a variable."""
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set or is_symbolic(handle):
        return None
    return tf.as_dtype(data.shape_and_type[0].dtype)


def _scale(optimizer: Any) -> Any:
    """Return the loss scale of mixed precision where the optimizer unscales; None without one."""
    scale = getattr(optimizer, "dynamic_scale", None)
    if scale is None or not is_keras_3():
        return None
    return keras.ops.convert_to_tensor(scale)


def _dense(gradient: Any, scale: Any) -> Any:
    if is_sparse(gradient):
        gradient = tf.convert_to_tensor(gradient)
    return gradient if scale is None else gradient / keras.ops.cast(scale, gradient.dtype)


# ---- recording what Keras does


@contextmanager
def recorded(model: Any, optimizers: Iterable[Any]) -> Iterator[None]:
    """Have layers and optimizers report to the recordings of their thread."""
    with ExitStack() as stack:
        stack.enter_context(recorded_layers(model))
        for optimizer in optimizers:
            name = "apply" if hasattr(optimizer, "apply") else "apply_gradients"
            wrap = _recording_apply if name == "apply" else _recording_apply_gradients
            stack.enter_context(replaced(optimizer, name, wrap(optimizer)))
        yield


@contextmanager
def recorded_layers(model: Any) -> Iterator[None]:
    """Have layers report to the recordings of their thread."""
    layer_class: Any = next(each for each in type(model).__mro__ if each.__name__ == "Layer")
    with _lock:
        count, original = _recorded.get(layer_class, (0, layer_class.__call__))
        if not count:
            layer_class.__call__ = _recording_call(original)
        _recorded[layer_class] = count + 1, original
    try:
        yield
    finally:
        with _lock:
            count, original = _recorded.pop(layer_class)
            if count == 1:
                layer_class.__call__ = original
            else:
                _recorded[layer_class] = count - 1, original


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an object an attribute of its own, without Keras tracking the assignment."""
    had, before = name in owner.__dict__, owner.__dict__.get(name)
    owner.__dict__[name] = value
    try:
        yield
    finally:
        if had:
            owner.__dict__[name] = before
        else:
            del owner.__dict__[name]


def _recording_call(original: Any) -> Any:
    @functools.wraps(original)
    def recording(self: Any, *args: Any, **kwargs: Any) -> Any:
        recordings = tuple(_active.recordings)
        # A mask only marks which inputs count.
        keywords = [value for name, value in kwargs.items() if not name.endswith("mask")]
        for each in recordings:
            each.record_call(self, _INPUTS, [*args, *keywords])
        result = original(self, *args, **kwargs)
        for each in recordings:
            each.record_call(self, _OUTPUTS, result)
        return result

    return no_autograph(recording)


@contextmanager
def _all_applying(optimizer: Any, pairs: list[tuple[Any, Any]]) -> Iterator[None]:
    with ExitStack() as stack:
        for recording in tuple(_active.recordings):
            stack.enter_context(recording.applying(optimizer, pairs))
        yield


def _recording_apply(optimizer: Any) -> Any:
    original = optimizer.apply

    @functools.wraps(original)
    def recording(grads: Any, trainable_variables: Any = None) -> Any:
        if not _active.recordings:
            return original(grads, trainable_variables)
        grads = list(grads)
        variables = trainable_variables
        if variables is None:
            variables = optimizer._trainable_variables
        with _all_applying(optimizer, list(zip(grads, variables, strict=False))):
            return original(grads, trainable_variables)

    return no_autograph(recording)


def _recording_apply_gradients(optimizer: Any) -> Any:
    original = optimizer.apply_gradients

    @functools.wraps(original)
    def recording(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        if not _active.recordings:
            return original(grads_and_vars, *args, **kwargs)
        pairs = list(grads_and_vars)
        with _all_applying(optimizer, pairs):
            return original(pairs, *args, **kwargs)

    return no_autograph(recording)


def no_autograph(function: Any) -> Any:
    """Keep AutoGraph from rewriting a function."""
    # As `do_not_convert` does, except that AutoGraph still rewrites the functions it calls.
    function.autograph_info__ = {}
    return function
