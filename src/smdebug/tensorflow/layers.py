"""The layers and variables of a Keras model, and what they are called."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from smdebug.tensorflow.backend import is_variable
from smdebug.tensorflow.naming import gradient_name, without_output

if TYPE_CHECKING:
    from collections.abc import Iterator


class Weight(NamedTuple):
    """A variable of a model.

    Attributes:
        name: what its value is called in a run.
        gradient: what its gradient is called.
        variable: the variable.
    """

    name: str
    gradient: str
    variable: Any


class ModelNames:
    """The names of everything in a model.

    A layer has its own name; where several have the same, the names of what they are in stand in
    front. A variable belongs to the outermost layer that is no model.

    Args:
        model: a Keras model whose variables exist.

    Attributes:
        weights: its variables.
        layers: the name of each layer, by its id.
        named_layers: each layer of it, with its name; the model itself is none.
        complete: whether the model has been built: otherwise there may be more of both.
    """

    def __init__(self, model: Any) -> None:
        self.complete = bool(model.built)
        found = list(_layers(model, ()))
        short = Counter(layer.name for layer, _, _ in found)
        self.layers = distinct(
            {
                id(layer): layer.name if short[layer.name] == 1 else "/".join((*path, layer.name))
                for layer, path, _ in found
            }
        )
        # Kept: an id is only good as long as what it is of lives.
        self.named_layers = [
            (layer, self.layers[id(layer)]) for layer, _, _ in found if layer is not model
        ]
        owners: dict[int, tuple[Any, tuple[str, ...]]] = {}
        paths = {id(layer): path for layer, path, _ in found}
        for _, _, owner in found:
            for variable in weights_of(owner):
                owners.setdefault(id(variable), (owner, paths[id(owner)]))
        weights = weights_of(model)
        names = _variable_names(weights, owners)
        self.weights = tuple(
            Weight(
                f"{self.layers[id(owners[id(v)][0])]}/weights/{names[id(v)]}:0",
                gradient_name(names[id(v)]),
                v,
            )
            for v in weights
        )
        self._variables: dict[int, str] = {}
        for variable in weights:
            # Keras 3 has the backend's variable inside of its own.
            for each in (variable, getattr(variable, "_value", variable)):
                self._variables[id(each)] = names[id(variable)]

    def variable(self, variable: Any) -> str | None:
        """Returns what a variable is called, without `:0`; None if it is not of the model."""
        return self._variables.get(id(variable))

    def gradient(self, variable: Any) -> str | None:
        """Returns what the gradient of a variable is called; None if it is not of the model."""
        name = self.variable(variable)
        return None if name is None else gradient_name(name)

    def layer(self, layer: Any) -> str | None:
        """Returns what a layer is called; None if it is not of the model."""
        return self.layers.get(id(layer))


def weights_of(layer: Any) -> list[Any]:
    """Returns the variables of a layer or a model, as far as they exist."""
    try:
        # A layer of words has something else among them.
        return [each for each in layer.weights if is_variable(each)]
    except ValueError:
        # A model of Keras 2 that has seen no data yet.
        return []


def variable_name(variable: Any) -> str:
    """Returns the name of a variable, with its place in the model in front, without `:0`."""
    return without_output(str(getattr(variable, "path", None) or variable.name))


def _layers(
    layer: Any, path: tuple[str, ...], owner: Any = None, seen: set[int] | None = None
) -> Iterator[tuple[Any, tuple[str, ...], Any]]:
    """Yields every layer inside of one, with its path and the layer that its variables belong to.

    The model itself comes last, as the owner of what no layer of it has.
    """
    seen = {id(layer)} if seen is None else seen
    for child in layer._flatten_layers(include_self=False, recursive=False):
        if id(child) in seen:
            continue
        seen.add(id(child))
        # A model inside of a model is only a place; a layer made of layers is one thing.
        owns = owner if owner is not None else (None if _is_model(child) else child)
        yield from _layers(child, (*path, child.name), owns, seen)
        yield child, path, owns or child
    if not path:
        yield layer, (), layer


def _is_model(layer: Any) -> bool:
    return hasattr(layer, "fit")


def _variable_names(
    variables: list[Any], owners: dict[int, tuple[Any, tuple[str, ...]]]
) -> dict[int, str]:
    """Names variables from their layer on, or from the model on where that is ambiguous."""
    short = {id(v): _from(owners[id(v)][0].name, variable_name(v)) for v in variables}
    count = Counter(short.values())
    return distinct(
        {
            key: name if count[name] == 1 else "/".join((*owners[key][1], name))
            for key, name in short.items()
        }
    )


def _from(layer: str, path: str) -> str:
    parts = path.split("/")
    return "/".join(parts[parts.index(layer) :]) if layer in parts else path


def distinct(names: dict[int, str]) -> dict[int, str]:
    """Appends a number to names that are there already.

    Example:
        >>> distinct({1: "kernel", 2: "kernel"})
        {1: 'kernel', 2: 'kernel_1'}
    """
    taken: set[str] = set()
    result = {}
    for key, name in names.items():
        candidate, number = name, 0
        while candidate in taken:
            number += 1
            candidate = f"{name}_{number}"
        taken.add(candidate)
        result[key] = candidate
    return result
