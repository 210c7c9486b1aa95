"""The layers and variables of a Keras model, and their names."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from smdebug.config.names import unique_name
from smdebug.tensorflow.backend import is_variable
from smdebug.tensorflow.naming import gradient_name, without_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Weight(NamedTuple):
    """A variable of a model.

    Attributes:
        name: the name of its value in a run.
        gradient: the name of its gradient.
        variable: the variable.
    """

    name: str
    gradient: str
    variable: Any


class ModelNames:
    """The names of the layers and variables of a model.

    A layer has its own name; where several have the same, the names of the layers around them are
    prepended. A variable belongs to the outermost layer that is not a model.

    Args:
        model: a Keras model whose variables exist.

    Attributes:
        weights: its variables.
        layers: the name of each layer, by its id.
        named_layers: each layer with its name, without the model itself.
        complete: whether the model has been built: otherwise more layers and variables may come.
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
        # References to the layers: an id is unique only while its object exists.
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
            # A variable of Keras 3 wraps one of the backend.
            for each in (variable, getattr(variable, "_value", variable)):
                self._variables[id(each)] = names[id(variable)]

    def variable(self, variable: Any) -> str | None:
        """Return the name of a variable without `:0`; None if the model does not have it."""
        return self._variables.get(id(variable))

    def gradient(self, variable: Any) -> str | None:
        """Return the name of the gradient of a variable; None if the model does not have it."""
        name = self.variable(variable)
        return None if name is None else gradient_name(name)

    def layer(self, layer: Any) -> str | None:
        """Return the name of a layer; None if the model does not have it."""
        return self.layers.get(id(layer))


class NamedModel:
    """The model that names refer to: the one that Keras or the user named last.

    Args:
        on_change: called when there are new names.

    Attributes:
        model: the model; None without one.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self.model: Any = None
        self._names: ModelNames | None = None
        self._weights: list[int] = []

    def set_model(self, model: Any) -> None:
        """Name the layers and variables of a model, or with None of no model."""
        if model is not self.model:
            self.model, self._names = model, None
        if model is not None:
            self.names()

    def names(self) -> ModelNames:
        """Return the names; they are made again when the model has got other variables."""
        weights = [id(variable) for variable in weights_of(self.model)]
        if self._names is None or self._weights != weights:
            self._names, self._weights = ModelNames(self.model), weights
            self._on_change()
        return self._names

    def layer(self, layer: Any) -> str:
        """Return the name of a layer; the one it has itself if the model does not have it."""
        known = None if self.model is None else self.names().layer(layer)
        return str(layer.name) if known is None else known

    def variable(self, variable: Any) -> str:
        """Return the name of a variable without `:0`, whether or not the model has it."""
        known = None if self.model is None else self.names().variable(variable)
        return known or variable_name(variable)

    def weight_names(self, variable: Any) -> list[str]:
        """Return the names under which the value of a variable of the model is saved."""
        if self.model is None:
            return []
        return [each.name for each in self.names().weights if each.variable is variable]


def weights_of(layer: Any) -> list[Any]:
    """Return the variables of a layer or a model, as far as they exist."""
    try:
        # A text vectorization layer has lookup tables among them.
        return [each for each in layer.weights if is_variable(each)]
    except ValueError:
        # A model of Keras 2 that is not built.
        return []


def variable_name(variable: Any) -> str:
    """Return the name of a variable, with its path in the model where known, without `:0`."""
    return without_output(str(getattr(variable, "path", None) or variable.name))


def _layers(
    layer: Any, path: tuple[str, ...], owner: Any = None, seen: set[int] | None = None
) -> Iterator[tuple[Any, tuple[str, ...], Any]]:
    """Yield every layer inside a layer, with its path and the layer that owns its variables.

    The model itself comes last, as the owner of variables that no layer has.
    """
    seen = {id(layer)} if seen is None else seen
    for child in layer._flatten_layers(include_self=False, recursive=False):
        if id(child) in seen:
            continue
        seen.add(id(child))
        # The layers of a nested model own their variables; a layer made of layers owns them all.
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
    """Name variables relative to their layer, or to the model where that is ambiguous."""
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
    """Append a number to names that come again.

    Example:
        >>> distinct({1: "kernel", 2: "kernel"})
        {1: 'kernel', 2: 'kernel_1'}
    """
    taken: set[str] = set()
    result = {}
    for key, name in names.items():
        result[key] = unique_name(name, taken)
        taken.add(result[key])
    return result
