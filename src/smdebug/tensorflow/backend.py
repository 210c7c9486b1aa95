"""The installed TensorFlow and Keras.

Keras 3 also runs on PyTorch and JAX, where TensorFlow may not be installed.
"""

from __future__ import annotations

import importlib
from typing import Any

tf: Any
keras: Any
try:
    tf = importlib.import_module("tensorflow")
    keras = tf.keras
except ImportError:
    tf = None
    keras = importlib.import_module("keras")


def keras_backend() -> str:
    """Return the backend of Keras: "tensorflow", "torch" or "jax"."""
    name: str = keras.backend.backend()
    return name


def is_keras_3() -> bool:
    """Return whether Keras is version 3, which has several backends."""
    return hasattr(keras, "ops")


def flatten(structure: Any) -> list[Any]:
    """Return the leaves of lists, tuples and dicts, in the order of Keras."""
    if hasattr(keras, "tree"):
        leaves: list[Any] = keras.tree.flatten(structure)
        return leaves
    return list(tf.nest.flatten(structure))


def is_tensor(value: Any) -> bool:
    """Return whether a value is a dense tensor of the backend, symbolic or not."""
    if keras_backend() == "tensorflow":
        return isinstance(value, tf.Tensor)
    is_keras_tensor = type(value).__name__ == "KerasTensor"
    return hasattr(value, "dtype") and hasattr(value, "shape") and not is_keras_tensor


def is_sparse(value: Any) -> bool:
    """Return whether a value is a gradient of which only some rows are stored."""
    return tf is not None and isinstance(value, tf.IndexedSlices)


def is_composite(value: Any) -> bool:
    """Return whether a value is a ragged or a sparse tensor."""
    return tf is not None and isinstance(value, tf.RaggedTensor | tf.SparseTensor)


def is_variable(value: Any) -> bool:
    """Return whether a value is a variable of TensorFlow or Keras."""
    if tf is not None and isinstance(value, tf.Variable):
        return True
    return hasattr(value, "assign") and hasattr(value, "trainable") and hasattr(value, "shape")
