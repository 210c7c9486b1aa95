"""Names of the tensors of TensorFlow and Keras, and the default collections."""

from __future__ import annotations

from smdebug.config.collection import CollectionKeys

# Weights that are frozen on purpose: rules ignore them.
FROZEN_PARAMETERS = "frozen_parameters"
GRADIENT_PREFIX = "gradients/"
# The whole name: a layer may be called `gradients`.
_GRADIENT = rf"{GRADIENT_PREFIX}.*Grad(_\d+)?$"

# An input or output of a layer, after the name of the layer.
_LAYER_TENSOR = r"/(inputs|outputs)(_\d+)?$"
LAYER_TENSORS = f"^(?!{_GRADIENT}).*{_LAYER_TENSOR}"
# Everything else, to exclude from a collection whose regexes name layers.
NOT_OF_A_LAYER = f"^(?!.*{_LAYER_TENSOR})"

_WEIGHT = f"^(?!{_GRADIENT})(.*/)?weights/"

_KEYS = CollectionKeys
KERAS_COLLECTIONS: dict[str, tuple[str, ...]] = {
    _KEYS.ALL: (),
    _KEYS.DEFAULT: (),
    # Only the last part of the name counts: a layer may be called `bias`.
    _KEYS.WEIGHTS: (rf"{_WEIGHT}(?!.*bias[^/]*$).*:\d+$",),
    _KEYS.BIASES: (rf"{_WEIGHT}(.*/)?[^/]*bias[^/]*:\d+$",),
    _KEYS.GRADIENTS: (f"^{_GRADIENT}",),
    _KEYS.LOSSES: (r"^[^/]*loss(_\d+)?$",),
    # Names are added when a metric or an optimizer variable is seen.
    _KEYS.METRICS: (),
    _KEYS.OPTIMIZER_VARIABLES: (),
    _KEYS.INPUTS: (r"^inputs(_\d+)?$",),
    _KEYS.OUTPUTS: (r"^(labels|predictions)(_\d+)?$",),
    _KEYS.LABELS: (r"^labels(_\d+)?$",),
    _KEYS.PREDICTIONS: (r"^predictions(_\d+)?$",),
    # Every layer, unless the user adds regexes or names.
    _KEYS.LAYERS: (),
    _KEYS.SM_METRICS: (),
    _KEYS.SEARCHABLE_SCALARS: (),
    _KEYS.SCALARS: ("^scalar/",),
}
# Names are added when the graph is known; only scalars that the user saves have a pattern.
_OF_GRAPHS = (
    _KEYS.ALL, _KEYS.DEFAULT, _KEYS.WEIGHTS, _KEYS.BIASES, _KEYS.GRADIENTS, _KEYS.LOSSES,
    _KEYS.METRICS, _KEYS.INPUTS, _KEYS.OUTPUTS, _KEYS.LAYERS, _KEYS.OPTIMIZER_VARIABLES,
    _KEYS.SM_METRICS, _KEYS.SEARCHABLE_SCALARS,
)  # fmt: skip
SESSION_COLLECTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_OF_GRAPHS, ()),
    _KEYS.SCALARS: ("^scalar/",),
}
ALWAYS_SAVED = frozenset({_KEYS.LOSSES, _KEYS.METRICS, _KEYS.SM_METRICS, _KEYS.SEARCHABLE_SCALARS})


def without_output(name: str) -> str:
    """Return a variable's name without the suffix `:0` of TensorFlow."""
    return name.rsplit(":", 1)[0] if ":" in name else name


def gradient_name(variable: str) -> str:
    """Return the name of the gradient of a variable.

    Example:
        >>> gradient_name("dense/kernel:0")
        'gradients/dense/kernelGrad'
    """
    return f"{GRADIENT_PREFIX}{without_output(variable)}Grad"


def numbered(name: str, count: int) -> list[str]:
    """Return the names of several tensors of one kind; a single one has no number.

    Example:
        >>> numbered("labels", 1), numbered("labels", 2)
        (['labels'], ['labels_0', 'labels_1'])
    """
    return [name] if count == 1 else [f"{name}_{index}" for index in range(count)]
