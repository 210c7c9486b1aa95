"""What is seen inside of one step of a Keras model: layers, gradients, data.

While a step is traced, what is seen are tensors that stand for values: they become additional
results of the function that is traced. Where Keras runs eagerly they are the values.
"""

from __future__ import annotations

import functools
import re
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from smdebug.tensorflow.backend import flatten, is_keras_3, is_tensor, keras, keras_backend, tf
from smdebug.tensorflow.naming import numbered
from smdebug.tensorflow.tensors import is_symbolic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from smdebug.tensorflow.layers import ModelNames

_INPUTS, _OUTPUTS = "inputs", "outputs"
# Python, tables, queues, files: what cannot be taken back. Lists of tensors have no state.
_EFFECTS = re.compile(
    "PyFunc|LookupTable|HashTable|Queue|(?<!TensorList)Stack|Barrier|Summary|WriteFile|Print"
)


class _Active(threading.local):
    def __init__(self) -> None:
        self.recordings: list[Recording] = []


# Of this thread: replicas of a model are traced in threads of their own.
_active = _Active()
# By how many each class of layers is watched, and how it was called before.
_watchers: dict[Any, tuple[int, Any]] = {}
_lock = threading.Lock()


class Recording:
    """The tensors of one step of one replica.

    Args:
        model: the model; what its own call returns are the predictions.
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
        """Takes note of what this thread does."""
        _active.recordings.append(self)
        try:
            yield
        finally:
            # Not always the last: tapes may be left in any order.
            _active.recordings.remove(self)

    def see_data(self, data: Any) -> None:
        """Takes note of a batch."""
        self._batch_seen = True
        try:
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        except ValueError:
            # A step of the model's own may take anything.
            x, y = data, None
        self._add_data("inputs", x)
        self._add_data("labels", y)

    def see_call(self, layer: Any, kind: str, value: Any) -> None:
        """Takes note of what a layer took or returned."""
        if self._eager and self._is_being_traced():
            # A layer that is built, or a function inside of the step.
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
        # What a recurrent layer calls, it calls again and again.
        hidden = self._loops > 0
        if recurrent and kind == _INPUTS:
            self._loops += 1
        if hidden:
            return
        self._called[id(layer)] = layer
        if any(is_tensor(each) and not self._can_leave(each) for each in flatten(value)):
            # In a loop: what is seen of the layer outside of it would be a part of the truth.
            self._in_loop.add(id(layer))
        self._layers.setdefault((id(layer), kind), []).extend(self._usable(value))

    @contextmanager
    def applying(self, optimizer: Any, pairs: Iterable[tuple[Any, Any]]) -> Iterator[None]:
        """Takes note of the gradients that an optimizer is given, but not of one inside of it."""
        if not self._depth:
            scale = _scale(optimizer)
            self._gradients += [(gradient, variable, scale) for gradient, variable in pairs]
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def tensors(self, names: ModelNames, wanted: Callable[[str], bool]) -> dict[str, Any]:
        """Returns what was seen of what is wanted, by name.

        Operations that this adds come after all of the step's own.
        """
        found: dict[str, Any] = {}
        for kind in ("inputs", "labels"):
            self._add_named(found, kind, self._data.get(kind, []))
        for (layer, kind), values in self._layers.items():
            name = names.layer(self._called[layer])
            if name is not None and layer not in self._in_loop:
                self._add_named(found, f"{name}/{kind}", values)
        # In the order they are computed.
        self._add_named(found, "predictions", self._data.get("predictions", []))
        result = {name: value for name, value in found.items() if wanted(name)}
        for gradient, variable, scale in self._gradients:
            name = names.gradient(variable)
            if name is None or gradient is None or not wanted(name):
                continue
            # Of a sparse one that stays inside of a function nothing can be made here.
            if self._can_leave(gradient.values if _is_sparse(gradient) else gradient):
                result[_free(name, result)] = self._kept(_dense(gradient, scale))
        return result

    @staticmethod
    def _add_named(found: dict[str, Any], name: str, values: list[Any]) -> None:
        found.update(zip(numbered(name, len(values)), values, strict=True))

    def variables(self) -> list[tuple[Any, Any]]:
        """What the step reads or writes: the handle and the type of each variable."""
        if self._graph is None:
            return []
        handles = [outside for outside, _ in self._graph.captures if outside.dtype == tf.resource]
        return [(each, _held_type(each)) for each in handles if _held_type(each) is not None]

    def has_state_of_its_own(self) -> bool:
        """Whether the step draws random numbers that another function would not draw."""
        # Those whose state is a variable, or an argument, have no seed of their own.
        return any("seed2" in node.attr for node in self._nodes())

    def has_other_effects(self) -> bool:
        """Whether the step changes something that is no variable: it must not run twice."""
        return any(_EFFECTS.search(node.op) for node in self._nodes())

    def _nodes(self) -> Iterator[Any]:
        if self._graph is not None:
            definition = self._graph.as_graph_def()
            yield from definition.node
            for function in definition.library.function:
                yield from function.node_def

    @staticmethod
    def _is_being_traced() -> bool:
        return keras_backend() == "tensorflow" and not tf.executing_eagerly()

    def _add_data(self, kind: str, value: Any) -> None:
        self._data.setdefault(kind, []).extend(self._usable(value))

    def _usable(self, value: Any) -> list[Any]:
        """Those of the tensors in a structure that can leave the step."""
        return [self._kept(each) for each in flatten(value) if self._can_leave(each)]

    def _can_leave(self, value: Any) -> bool:
        if not is_tensor(value):
            return False
        if self._eager:
            return not is_symbolic(value)
        # A tensor of a loop or of a function inside of the step stays there.
        return getattr(value, "graph", None) is self._graph

    def _kept(self, value: Any) -> Any:
        # What PyTorch holds may be written to by what comes next.
        return value.detach().clone() if keras_backend() == "torch" else value


def _free(name: str, taken: dict[str, Any]) -> str:
    """A name for one more gradient of a variable in one step."""
    number, free = 0, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def _held_type(handle: Any) -> Any:
    """The type of what the variable of a handle holds; None if it is no variable's."""
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set or is_symbolic(handle):
        return None
    return tf.as_dtype(data.shape_and_type[0].dtype)


def _scale(optimizer: Any) -> Any:
    """What gradients in mixed precision are multiplied with, where the optimizer divides again."""
    scale = getattr(optimizer, "dynamic_scale", None)
    if scale is None or not is_keras_3():
        return None
    return keras.ops.convert_to_tensor(scale)


def _is_sparse(gradient: Any) -> bool:
    return tf is not None and isinstance(gradient, tf.IndexedSlices)


def _dense(gradient: Any, scale: Any) -> Any:
    if _is_sparse(gradient):
        gradient = tf.convert_to_tensor(gradient)
    return gradient if scale is None else gradient / keras.ops.cast(scale, gradient.dtype)


# ---- where Keras is asked to tell


@contextmanager
def watched(model: Any, optimizers: Iterable[Any]) -> Iterator[None]:
    """Has layers and optimizers tell the recording of their thread what they do."""
    with ExitStack() as stack:
        stack.enter_context(watched_layers(model))
        for optimizer in optimizers:
            name = "apply" if hasattr(optimizer, "apply") else "apply_gradients"
            patched = _telling_apply if name == "apply" else _telling_apply_gradients
            stack.enter_context(replaced(optimizer, name, patched(optimizer)))
        yield


@contextmanager
def watched_layers(model: Any) -> Iterator[None]:
    """Has layers tell the recordings of their thread what they do."""
    layer_class: Any = next(each for each in type(model).__mro__ if each.__name__ == "Layer")
    with _lock:
        count, original = _watchers.get(layer_class, (0, layer_class.__call__))
        if not count:
            layer_class.__call__ = _telling_call(original)
        _watchers[layer_class] = count + 1, original
    try:
        yield
    finally:
        with _lock:
            count, original = _watchers.pop(layer_class)
            if count == 1:
                layer_class.__call__ = original
            else:
                _watchers[layer_class] = count - 1, original


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Gives an object an attribute of its own, past what Keras does with attributes."""
    had, before = name in owner.__dict__, owner.__dict__.get(name)
    owner.__dict__[name] = value
    try:
        yield
    finally:
        if had:
            owner.__dict__[name] = before
        else:
            del owner.__dict__[name]


def _telling_call(original: Any) -> Any:
    @functools.wraps(original)
    def telling(self: Any, *args: Any, **kwargs: Any) -> Any:
        recordings = tuple(_active.recordings)
        for recording in recordings:
            recording.see_call(self, _INPUTS, [*args, *_inputs(kwargs)])
        result = original(self, *args, **kwargs)
        for recording in recordings:
            recording.see_call(self, _OUTPUTS, result)
        return result

    return no_autograph(telling)


def _inputs(keywords: dict[str, Any]) -> list[Any]:
    """What a layer is given by name; a mask says which of the inputs count, and is none."""
    return [value for name, value in keywords.items() if not name.endswith("mask")]


@contextmanager
def _all_applying(optimizer: Any, pairs: list[tuple[Any, Any]]) -> Iterator[None]:
    with ExitStack() as stack:
        for recording in tuple(_active.recordings):
            stack.enter_context(recording.applying(optimizer, pairs))
        yield


def _telling_apply(optimizer: Any) -> Any:
    original = optimizer.apply

    @functools.wraps(original)
    def telling(grads: Any, trainable_variables: Any = None) -> Any:
        if not _active.recordings:
            return original(grads, trainable_variables)
        grads = list(grads)
        variables = trainable_variables
        if variables is None:
            variables = optimizer._trainable_variables
        with _all_applying(optimizer, list(zip(grads, variables, strict=False))):
            return original(grads, trainable_variables)

    return no_autograph(telling)


def _telling_apply_gradients(optimizer: Any) -> Any:
    original = optimizer.apply_gradients

    @functools.wraps(original)
    def telling(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        if not _active.recordings:
            return original(grads_and_vars, *args, **kwargs)
        pairs = list(grads_and_vars)
        with _all_applying(optimizer, pairs):
            return original(pairs, *args, **kwargs)

    return no_autograph(telling)


def no_autograph(function: Any) -> Any:
    """Keeps AutoGraph from rewriting a function."""
    # As `do_not_convert` does; but what it calls may have to be rewritten.
    function.autograph_info__ = {}
    return function
