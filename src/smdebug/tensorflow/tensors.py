"""Tensors of TensorFlow and Keras: how they get to the host, and what their numbers are.

TensorFlow never writes to the memory of a tensor that somebody holds: an optimizer that updates a
variable whose value was read makes a new one. A tensor is therefore taken by reference, and
everything else happens on the writer's thread. On an accelerator reductions are computed there.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from smdebug.hook.capture import (
    ArrayCapture,
    SingleCapture,
    make_entry,
    reduced_entry,
    reductions_of,
)
from smdebug.tensorflow.backend import is_variable, keras, keras_backend, tf

if TYPE_CHECKING:
    from smdebug.hook.capture import Capture
    from smdebug.hook.plan import SaveRequest
    from smdebug.reductions import Array
    from smdebug.storage.batch import StepBatch


def to_array(tensor: Any) -> Array:
    """Returns a tensor, a variable or a number as an array that nobody else writes to."""
    if is_variable(tensor):
        tensor = value_of(tensor)
    if tf is not None and isinstance(tensor, tf.Tensor):
        array = np.asarray(tensor.numpy())
    elif keras_backend() == "torch" and hasattr(tensor, "detach"):
        array = _torch_array(tensor)
    elif keras_backend() == "jax" and hasattr(tensor, "dtype"):
        array = np.array(keras.ops.convert_to_numpy(tensor))
    else:
        array = np.array(tensor)
    return _text(array) if array.dtype.kind in "SO" else array


def _text(array: Array) -> Array:
    items = [
        each.decode("utf-8", "backslashreplace") if isinstance(each, bytes) else str(each)
        for each in array.reshape(-1).tolist()
    ]
    return np.array(items, dtype=str).reshape(array.shape)


def _torch_array(tensor: Any) -> Array:
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if str(tensor.dtype) == "torch.bfloat16":
        # NumPy does not know the type, and PyTorch does not know ml_dtypes.
        bits = tensor.contiguous().view(importlib.import_module("torch").int16)
        return np.array(bits.numpy().view(ml_dtypes.bfloat16))
    return np.array(tensor.numpy())


def is_symbolic(value: Any) -> bool:
    """Whether a value is a tensor of a graph, which only stands for one."""
    return tf is not None and isinstance(value, tf.Tensor) and not hasattr(value, "numpy")


def value_of(variable: Any) -> Any:
    """Returns what a variable holds now, which later updates leave as it is."""
    if keras_backend() != "tensorflow":
        return getattr(variable, "value", variable)
    # Keras 3 has the variable of TensorFlow inside of its own.
    inner = variable if isinstance(variable, tf.Variable) else variable.value
    strategy = getattr(inner, "_distribute_strategy", None)
    if strategy is not None and strategy.extended._in_multi_worker_mode():
        # To read it as a whole would wait for all processes.
        inner = strategy.experimental_local_results(inner)[0]
        strategy = None
    if strategy is not None:
        return tf.convert_to_tensor(inner)
    # As it is: no tape that is open takes note of the reading.
    return tf.raw_ops.ReadVariableOp(resource=inner.handle, dtype=inner.dtype)


def take(name: str, tensor: Any, want: SaveRequest) -> Capture | None:
    """Takes a tensor, to be finished on the writer's thread; None for what has no numbers."""
    if tf is None or not isinstance(tensor, tf.Tensor):
        return ArrayCapture(name, to_array(tensor), want)
    if tensor.dtype in (tf.resource, tf.variant):
        return None
    if "CPU" in tensor.device or not want.reductions:
        return TensorCapture(name, tensor, want)
    return DeviceTensorCapture(name, tensor, want)


class TensorCapture(SingleCapture):
    """One tensor that is held until it is written.

    Args:
        name: its name.
        tensor: a tensor with a value.
        want: what is saved of it.
    """

    def __init__(self, name: str, tensor: Any, want: SaveRequest) -> None:
        super().__init__(name, want, int(tensor.shape.num_elements() or 0) * tensor.dtype.size)
        self._tensor = tensor

    def finish(self, batch: StepBatch) -> None:
        array = to_array(self._tensor)
        batch.entries.append(make_entry(self._name, array, self._want, batch.placed))


class DeviceTensorCapture(SingleCapture):
    """One tensor of an accelerator: its reductions are computed there.

    Nothing here waits for the device; the writer's thread does.

    Args:
        name: its name.
        tensor: a tensor with a value.
        want: what is saved of it.
    """

    def __init__(self, name: str, tensor: Any, want: SaveRequest) -> None:
        size = int(tensor.shape.num_elements() or 0) * tensor.dtype.size
        whole = want.raw or want.histogram is not None
        super().__init__(name, want, size, size if whole else 0)
        self._dtype = np.dtype(tensor.dtype.as_numpy_dtype)
        self._shape = tuple(tensor.shape)
        self._names = reductions_of(self._dtype, want)
        self._numbers = device_reductions(tensor, self._names) if self._names else None
        self._tensor = tensor if whole else None

    def finish(self, batch: StepBatch) -> None:
        numbers = {}
        if self._numbers is not None:
            numbers = dict(zip(self._names, self._numbers.numpy().tolist(), strict=True))
        value = None if self._tensor is None else to_array(self._tensor)
        entry = reduced_entry(
            self._name, value, numbers, self._shape, self._dtype, self._want, batch.placed
        )
        batch.entries.append(entry)


def device_reductions(tensor: Any, names: tuple[str, ...]) -> Any:
    """Computes reductions where the tensor is: one small tensor, in the order of the names.

    The same as `smdebug.reductions`, with the elements in float32 at least (float64 for 64-bit
    types), and the results in float64.
    """
    flat = tf.reshape(tensor, [-1])
    if tensor.dtype.is_complex:
        wide, absolute = tf.stack([tf.math.real(flat), tf.math.imag(flat)], 1), tf.abs(flat)
    else:
        wide, absolute = tf.cast(flat, _wide_dtype(tensor.dtype)), None
    results = []
    for name in names:
        plain = name.removeprefix("abs_")
        if plain == name and not (tensor.dtype.is_complex and plain in ("l1", "l2", "zeros")):
            operand = wide
        else:
            absolute = tf.abs(wide) if absolute is None else absolute
            operand = absolute
        results.append(tf.cast(_reduction(operand, plain), tf.float64))
    return tf.stack(results)


def _wide_dtype(dtype: Any) -> Any:
    exact = dtype.size >= 8 or dtype in (tf.int32, tf.uint32)
    return tf.float64 if exact else tf.float32


def _reduction(x: Any, name: str) -> Any:
    if name in ("min", "max", "mean", "std", "variance", "median") and not int(tf.size(x)):
        return tf.constant(np.nan, x.dtype)
    return _REDUCTIONS[name](x)


def _scaled(x: Any, name: str) -> Any:
    """A reduction by squares, which must neither overflow nor vanish."""
    if not int(tf.size(x)):
        return tf.constant(0, x.dtype)
    scale = tf.reduce_max(tf.abs(x))
    # A maximum passes over numbers that are none.
    scale = tf.where(tf.reduce_any(tf.math.is_nan(x)), tf.constant(np.nan, x.dtype), scale)
    usable = tf.math.is_finite(scale) & (scale > 0)
    divisor = tf.where(usable, scale, tf.ones_like(scale))
    if name == "l2":
        return tf.where(usable, divisor * tf.norm(x / divisor), scale)
    std = divisor * tf.math.reduce_std(x / divisor)
    return std if name == "std" else tf.square(tf.cast(std, tf.float64))


def _extreme(x: Any, reduce: Any) -> Any:
    # TensorFlow's own passes over numbers that are none.
    nan = tf.constant(np.nan, x.dtype)
    return tf.where(tf.reduce_any(tf.math.is_nan(x)), nan, reduce(x))


def _median(x: Any) -> Any:
    size = int(tf.size(x))
    ordered = tf.sort(x)
    low, high = ordered[(size - 1) // 2], ordered[size // 2]
    middle = tf.where(low == high, low, (low + high) / 2)
    nan = tf.constant(np.nan, x.dtype)
    return tf.where(tf.reduce_any(tf.math.is_nan(x)), nan, middle)


def _count(marked: Any) -> Any:
    # Of a complex number both parts are looked at.
    marked = tf.reduce_any(marked, -1) if marked.shape.rank > 1 else marked
    return tf.math.count_nonzero(marked)


_REDUCTIONS: dict[str, Any] = {
    "min": lambda x: _extreme(x, tf.reduce_min),
    "max": lambda x: _extreme(x, tf.reduce_max),
    "mean": lambda x: tf.reduce_mean(x),
    "sum": lambda x: tf.reduce_sum(x),
    "prod": lambda x: tf.reduce_prod(x),
    "std": lambda x: _scaled(x, "std"),
    "variance": lambda x: _scaled(x, "variance"),
    "l2": lambda x: _scaled(x, "l2"),
    "median": _median,
    "l1": lambda x: tf.reduce_sum(tf.abs(x)),
    "nans": lambda x: _count(tf.math.is_nan(x)),
    "infs": lambda x: _count(tf.math.is_inf(x)),
    "zeros": lambda x: tf.math.count_nonzero(tf.equal(x, 0)),
}


def is_finite(tensor: Any) -> bool:
    """Whether all of a tensor is finite; on an accelerator this waits for the device."""
    if tf is None or not isinstance(tensor, tf.Tensor):
        array = to_array(tensor)
        return array.dtype.kind not in "fcV" or bool(np.isfinite(array).all())
    if tensor.dtype.is_complex:
        return is_finite(tf.math.real(tensor)) and is_finite(tf.math.imag(tensor))
    if not tensor.dtype.is_floating:
        return True
    if tensor.dtype.size == 1:
        tensor = tf.cast(tensor, tf.float32)
    return bool(tf.reduce_all(tf.math.is_finite(tensor)))
