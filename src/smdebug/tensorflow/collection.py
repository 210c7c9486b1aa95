"""Collections that also take layers, variables and tensors of TensorFlow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from smdebug.config.collection import Collection as BaseCollection
from smdebug.exceptions import SMDebugTypeError
from smdebug.tensorflow.backend import is_variable, tf

if TYPE_CHECKING:
    from collections.abc import Callable


class Collection(BaseCollection):
    """A named set of tensors; see `smdebug.Collection`.

    Variables of a Keras model get their names when the model is known, which may be later.

    Example:
        >>> collection = Collection("first")
        >>> collection.add_keras_layer(keras.layers.Dense(2, name="first"))  # doctest: +SKIP
    """

    # Set per instance on first use, so that what the base class does with fields stays simple.
    _variables: tuple[Any, ...] = ()
    _layers: tuple[tuple[Any, tuple[str, ...]], ...] = ()

    def add(self, tensor_names: Any) -> None:
        """Adds tensors: names, variables, tensors and operations of a graph, or lists of them.

        Args:
            tensor_names: a name, a variable, a tensor or an operation of a graph, or lists of
                them.

        Raises:
            SMDebugTypeError: something that has no name, such as a tensor with a value.
        """
        if isinstance(tensor_names, list | tuple | set | frozenset):
            for each in tensor_names:
                self.add(each)
        elif isinstance(tensor_names, str):
            super().add(tensor_names)
        elif is_variable(tensor_names):
            self._variables += (tensor_names,)
        else:
            super().add(self._names_of(tensor_names))

    def _names_of(self, value: Any) -> list[str]:
        if tf is not None and isinstance(value, tf.Operation):
            return [output.name for output in value.outputs]
        if tf is not None and isinstance(value, tf.Tensor) and hasattr(value, "numpy"):
            raise SMDebugTypeError(
                f"collection {self.name!r}: expected names, variables or tensors of a graph, got a "
                "tensor that has a value and no name; use hook.save_tensor to save it"
            )
        name = getattr(value, "name", None)
        if not isinstance(name, str):
            raise SMDebugTypeError(
                f"collection {self.name!r}: expected names, variables or tensors of a graph, got "
                f"{type(value).__name__}"
            )
        return [name]

    def add_keras_layer(self, layer: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Adds what a layer takes or returns.

        Args:
            layer: a layer of Keras.
            inputs: add its inputs.
            outputs: add its outputs.

        Raises:
            SMDebugTypeError: it is no layer.

        Example:
            >>> collection = Collection("attention")
            >>> collection.add_keras_layer(layer, inputs=True)  # doctest: +SKIP
        """
        if not hasattr(layer, "call") or not isinstance(getattr(layer, "name", None), str):
            raise SMDebugTypeError(
                f"collection {self.name!r}: layer must be a layer of Keras, got "
                f"{type(layer).__name__}"
            )
        kinds = [kind for kind, wanted in (("inputs", inputs), ("outputs", outputs)) if wanted]
        self._layers += ((layer, tuple(kinds)),)

    def is_empty(self) -> bool:
        """Tells whether the collection names no tensor at all."""
        return super().is_empty() and not self._variables and not self._layers

    def resolve(
        self, variable_names: Callable[[Any], list[str]], layer_name: Callable[[Any], str]
    ) -> None:
        """Adds the names of variables and layers; they stay, for another model may name others."""
        for variable in self._variables:
            super().add(variable_names(variable))
        for layer, kinds in self._layers:
            name = re.escape(layer_name(layer))
            # A layer of a graph has the names of its tensors behind it.
            regexes = [rf"^{name}/{kind}(_\d+|/.*)?$" for kind in kinds]
            self.include([regex for regex in regexes if regex not in self.include_regex])

    def overlay(self, other: BaseCollection) -> None:
        """Adds the regexes and names of another collection; the configurations it has win."""
        super().overlay(other)
        if isinstance(other, Collection):
            self._variables += other._variables
            self._layers += other._layers
