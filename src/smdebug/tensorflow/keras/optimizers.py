"""The optimizers of a Keras model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from smdebug.tensorflow.backend import keras


def is_optimizer(value: Any) -> bool:
    """Return whether a value is a Keras optimizer."""
    legacy = getattr(keras.optimizers, "legacy", None)
    kinds = keras.optimizers.Optimizer, getattr(legacy, "Optimizer", keras.optimizers.Optimizer)
    return isinstance(value, kinds)


def optimizers_of(model: Any) -> list[Any]:
    """Return the optimizers that a model was compiled with or has in its attributes."""
    held = [getattr(model, "optimizer", None)]
    for value in vars(model).values():
        if isinstance(value, Mapping):
            held += value.values()
        else:
            held += value if isinstance(value, Sequence) else [value]
    return distinct_objects(each for each in held if is_optimizer(each))


def optimizer_variables(optimizer: Any) -> list[Any]:
    """Return the variables of an optimizer; in older versions of Keras it is a method."""
    variables = getattr(optimizer, "variables", ())
    return list(variables() if callable(variables) else variables)


def distinct_objects(objects: Any) -> list[Any]:
    """Return each object once, in order; variables cannot be compared by value."""
    return list({id(each): each for each in objects}.values())
