"""Tensors of TensorFlow and Keras: captures, conversion to arrays, reductions on a device.

TensorFlow never writes to the memory of a tensor that is referenced elsewhere: an optimizer that
updates a variable whose value was read allocates a new one. A tensor is therefore captured by
reference, and everything else happens on the writer thread. Reductions of a tensor on an
accelerator are computed there.
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
from smdebug.hook.nan_trigger import is_finite_array
from smdebug.tensorflow.backend import is_variable, keras, keras_backend, tf

if TYPE_CHECKING:
    from smdebug.hook.capture import Capture
    from smdebug.hook.plan import SaveRequest
    from smdebug.reductions import Array
    from smdebug.storage.batch import StepBatch


def to_array(tensor: Any) -> Array:
    """Return a tensor, a variable or a number as an array that nothing else writes to."""
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
    return _decoded(array) if array.dtype.kind in "SO" else array


def _decoded(array: Array) -> Array:
    """Return an array of bytes as one of strings."""
    items = [
        each.decode("utf-8", "backslashreplace") if isinstance(each, bytes) else str(each)
        for each in array.reshape(-1).tolist()
    ]
    return np.array(items, dtype=str).reshape(array.shape)


def _torch_array(tensor: Any) -> Array:
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if str(tensor.dtype) == "torch.bfloat16":
        # NumPy lacks the type, and PyTorch does not support ml_dtypes.
        bits = tensor.contiguous().view(importlib.import_module("torch").int16)
        return np.array(bits.numpy().view(ml_dtypes.bfloat16))
    return np.array(tensor.numpy())


def is_symbolic(value: Any) -> bool:
    """Return whether a value is a tensor of a graph, which has no value."""
    return tf is not None and isinstance(value, tf.Tensor) and not hasattr(value, "numpy")


def value_of(variable: Any) -> Any:
    """Return the present value of a variable; later updates do not change it."""
    if keras_backend() != "tensorflow":
        return getattr(variable, "value", variable)
    # A variable of Keras 3 wraps one of TensorFlow.
    inner = variable if isinstance(variable, tf.Variable) else variable.value
    strategy = getattr(inner, "_distribute_strategy", None)
    if strategy is not None and strategy.extended._in_multi_worker_mode():
        # Reading the distributed variable would wait for all processes.
        inner = strategy.experimental_local_results(inner)[0]
        strategy = None
    if strategy is not None:
        return tf.convert_to_tensor(inner)
    # The raw operation: an open tape would record any other way to read it.
    return tf.raw_ops.ReadVariableOp(resource=inner.handle, dtype=inner.dtype)


def capture_tensor(
    name: str, tensor: Any, request: SaveRequest, time: float | None = None
) -> Capture | None:
    """Capture a tensor, to be finished on the writer thread; None for one without numbers.

    Args:
        name: its name.
        tensor: a tensor with a value, or an array.
        request: what to save of it.
        time: seconds since 1970, when it differs from the step's.
    """
    if tf is None or not isinstance(tensor, tf.Tensor):
        return ArrayCapture(name, to_array(tensor), request, time)
    if tensor.dtype in (tf.resource, tf.variant):
        return None
    if "CPU" in tensor.device or not request.reductions:
        return TensorCapture(name, tensor, request, time)
    return DeviceTensorCapture(name, tensor, request, time)


class TensorCapture(SingleCapture):
    """One tensor that is referenced until it is written.

    Args:
        name: its name.
        tensor: a tensor with a value.
        request: what to save of it.
        time: seconds since 1970, when it differs from the step's.
    """

    def __init__(
        self, name: str, tensor: Any, request: SaveRequest, time: float | None = None
    ) -> None:
        super().__init__(name, request, _nbytes(tensor), time=time)
        self._tensor = tensor

    def finish(self, batch: StepBatch) -> None:
        array = to_array(self._tensor)
        entry = make_entry(self._name, array, self._request, batch.placed, self._time)
        batch.entries.append(entry)


class DeviceTensorCapture(SingleCapture):
    """One tensor on an accelerator, where its reductions are computed.

    Nothing here waits for the device; the writer thread does.

    Args:
        name: its name.
        tensor: a tensor with a value.
        request: what to save of it.
        time: seconds since 1970, when it differs from the step's.
    """

    def __init__(
        self, name: str, tensor: Any, request: SaveRequest, time: float | None = None
    ) -> None:
        size = _nbytes(tensor)
        whole = request.raw or request.histogram is not None
        super().__init__(name, request, size, size if whole else 0, time)
        self._dtype = np.dtype(tensor.dtype.as_numpy_dtype)
        self._shape = tuple(tensor.shape)
        self._names = reductions_of(self._dtype, request)
        self._numbers = device_reductions(tensor, self._names) if self._names else None
        self._tensor = tensor if whole else None

    def finish(self, batch: StepBatch) -> None:
        numbers = {}
        if self._numbers is not None:
            numbers = dict(zip(self._names, self._numbers.numpy().tolist(), strict=True))
        value = None if self._tensor is None else to_array(self._tensor)
        batch.entries.append(
            reduced_entry(
                self._name, value, numbers, self._shape, self._dtype, self._request, batch.placed,
                self._time,
            )
        )  # fmt: skip


def _nbytes(tensor: Any) -> int:
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def device_reductions(tensor: Any, names: tuple[str, ...]) -> Any:
    """Compute reductions on the tensor's device: one small tensor, in the order of the names.

    Like `smdebug.reductions`, with the elements in at least float32 (float64 for 64-bit types), and
    the results in float64.
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
    """Compute a reduction of squares without overflow or underflow."""
    if not int(tf.size(x)):
        return tf.constant(0, x.dtype)
    scale = tf.reduce_max(tf.abs(x))
    # A maximum ignores NaN.
    scale = tf.where(tf.reduce_any(tf.math.is_nan(x)), tf.constant(np.nan, x.dtype), scale)
    usable = tf.math.is_finite(scale) & (scale > 0)
    divisor = tf.where(usable, scale, tf.ones_like(scale))
    if name == "l2":
        return tf.where(usable, divisor * tf.norm(x / divisor), scale)
    std = divisor * tf.math.reduce_std(x / divisor)
    return std if name == "std" else tf.square(tf.cast(std, tf.float64))


def _extreme(x: Any, reduce: Any) -> Any:
    # TensorFlow's own reduction ignores NaN.
    nan = tf.constant(np.nan, x.dtype)
    return tf.where(tf.reduce_any(tf.math.is_nan(x)), nan, reduce(x))


def _median(x: Any) -> Any:
    size = int(tf.size(x))
    ordered = tf.sort(x)
    low, high = ordered[(size - 1) // 2], ordered[size // 2]
    middle = tf.where(low == high, low, (low + high) / 2)
    nan = tf.constant(np.nan, x.dtype)
    return tf.where(tf.reduce_any(tf.math.is_nan(x)), nan, middle)


def _count(mask: Any) -> Any:
    # A complex number counts if either of its parts does.
    mask = tf.reduce_any(mask, -1) if mask.shape.rank > 1 else mask
    return tf.math.count_nonzero(mask)


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
    """Return whether all elements are finite; on an accelerator this waits for the device."""
    if tf is None or not isinstance(tensor, tf.Tensor):
        return is_finite_array(to_array(tensor))
    if tensor.dtype.is_complex:
        return is_finite(tf.math.real(tensor)) and is_finite(tf.math.imag(tensor))
    if not tensor.dtype.is_floating:
        return True
    if tensor.dtype.size == 1:
        tensor = tf.cast(tensor, tf.float32)
    return bool(tf.reduce_all(tf.math.is_finite(tensor)))
