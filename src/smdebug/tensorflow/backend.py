"""Which TensorFlow and which Keras there are.

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
    """Returns what Keras computes with: "tensorflow", "torch" or "jax"."""
    name: str = keras.backend.backend()
    return name


def is_keras_3() -> bool:
    """Whether Keras is the one that has several backends."""
    return hasattr(keras, "ops")


def flatten(structure: Any) -> list[Any]:
    """Returns what lists, tuples and dicts hold, in the order Keras has it."""
    if hasattr(keras, "tree"):
        leaves: list[Any] = keras.tree.flatten(structure)
        return leaves
    return list(tf.nest.flatten(structure))


def is_tensor(value: Any) -> bool:
    """Whether a value is a dense tensor with numbers in it, or one that stands for them."""
    if keras_backend() == "tensorflow":
        return isinstance(value, tf.Tensor)
    return hasattr(value, "dtype") and hasattr(value, "shape") and not _is_symbolic(value)


def _is_symbolic(value: Any) -> bool:
    return type(value).__name__ == "KerasTensor"


def is_variable(value: Any) -> bool:
    """Whether a value is a variable of TensorFlow or of Keras."""
    if tf is not None and isinstance(value, tf.Variable):
        return True
    return hasattr(value, "assign") and hasattr(value, "trainable") and hasattr(value, "shape")
