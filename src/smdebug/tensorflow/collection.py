"""Collections that also hold layers, variables and tensors of TensorFlow."""

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

    Variables and layers of a Keras model are named once the model is known.

    Example:
        >>> collection = Collection("first")
        >>> collection.add_keras_layer(keras.layers.Dense(2, name="first"))  # doctest: +SKIP
    """

    _variables: tuple[Any, ...] = ()
    _layers: tuple[tuple[Any, tuple[str, ...]], ...] = ()

    def add(self, tensor_names: Any) -> None:
        """Add tensors.

        Args:
            tensor_names: a name, a variable, a tensor or an operation of a graph, or lists of
                these.

        Raises:
            SMDebugTypeError: something without a name, such as an eager tensor.
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
                f"collection {self.name!r}: expected names, variables or tensors of a graph, got "
                "an eager tensor, which has no name; use hook.save_tensor to save it"
            )
        name = getattr(value, "name", None)
        if not isinstance(name, str):
            raise SMDebugTypeError(
                f"collection {self.name!r}: expected names, variables or tensors of a graph, got "
                f"{type(value).__name__}"
            )
        return [name]

    def add_keras_layer(self, layer: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Add the inputs or outputs of a layer.

        Args:
            layer: a Keras layer.
            inputs: add its inputs.
            outputs: add its outputs.

        Raises:
            SMDebugTypeError: it is not a layer.

        Example:
            >>> collection = Collection("attention")
            >>> collection.add_keras_layer(layer, inputs=True)  # doctest: +SKIP
        """
        if not hasattr(layer, "call") or not isinstance(getattr(layer, "name", None), str):
            raise SMDebugTypeError(
                f"collection {self.name!r}: layer must be a Keras layer, got {type(layer).__name__}"
            )
        kinds = [kind for kind, wanted in (("inputs", inputs), ("outputs", outputs)) if wanted]
        self._layers += ((layer, tuple(kinds)),)

    def is_empty(self) -> bool:
        """Return whether the collection names no tensor at all."""
        return super().is_empty() and not self._variables and not self._layers

    def resolve(
        self, variable_names: Callable[[Any], list[str]], layer_name: Callable[[Any], str]
    ) -> None:
        """Add the names of variables and layers, as far as they are new.

        The variables and layers stay: in another model they may have other names.

        Args:
            variable_names: returns the names that a variable may have.
            layer_name: returns the name of a layer.
        """
        names = [name for variable in self._variables for name in variable_names(variable)]
        regexes = []
        for layer, kinds in self._layers:
            name = re.escape(layer_name(layer))
            # In a graph the tensors of a layer have more parts after this.
            regexes += [rf"^{name}/{kind}(_\d+|/.*)?$" for kind in kinds]
        # Every change makes the hook's plan again, with all that was traced for it.
        if new := [name for name in names if not self.has_tensor_name(name)]:
            super().add(new)
        if new := [regex for regex in regexes if regex not in self.include_regex]:
            self.include(new)

    def overlay(self, other: BaseCollection) -> None:
        """Add the tensors of another collection; configurations that it has replace these."""
        super().overlay(other)
        if isinstance(other, Collection):
            self._variables += other._variables
            self._layers += other._layers
