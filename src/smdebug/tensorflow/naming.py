"""What tensors of TensorFlow and Keras are called in a run."""

from __future__ import annotations

from smdebug.config.collection import CollectionKeys

# Weights that somebody keeps from training: rules leave them alone.
FROZEN_PARAMETERS = "frozen_parameters"
GRADIENT_PREFIX = "gradients/"
# The whole of it: a layer may be called `gradients`.
_GRADIENT = rf"{GRADIENT_PREFIX}.*Grad(_\d+)?$"

# What a layer took and returned: its name is in front.
_LAYER_TENSOR = r"/(inputs|outputs)(_\d+)?$"
LAYER_TENSORS = f"^(?!{_GRADIENT}).*{_LAYER_TENSOR}"
# What is no tensor of a layer, for a collection that names only layers.
NOT_OF_A_LAYER = f"^(?!.*{_LAYER_TENSOR})"

_WEIGHT = f"^(?!{_GRADIENT})(.*/)?weights/"

_KEYS = CollectionKeys
KERAS_COLLECTIONS: dict[str, tuple[str, ...]] = {
    _KEYS.ALL: (),
    _KEYS.DEFAULT: (),
    # The last part of a weight's name tells what it is; a layer may be called `bias`.
    _KEYS.WEIGHTS: (rf"{_WEIGHT}(?!.*bias[^/]*$).*:\d+$",),
    _KEYS.BIASES: (rf"{_WEIGHT}(.*/)?[^/]*bias[^/]*:\d+$",),
    _KEYS.GRADIENTS: (f"^{_GRADIENT}",),
    _KEYS.LOSSES: (r"^[^/]*loss(_\d+)?$",),
    # What the model reports, and the variables of its optimizer: named when they are seen.
    _KEYS.METRICS: (),
    _KEYS.OPTIMIZER_VARIABLES: (),
    _KEYS.INPUTS: (r"^inputs(_\d+)?$",),
    _KEYS.OUTPUTS: (r"^(labels|predictions)(_\d+)?$",),
    _KEYS.LABELS: (r"^labels(_\d+)?$",),
    _KEYS.PREDICTIONS: (r"^predictions(_\d+)?$",),
    # All of them, unless regexes say which.
    _KEYS.LAYERS: (),
    _KEYS.SM_METRICS: (),
    _KEYS.SEARCHABLE_SCALARS: (),
    _KEYS.SCALARS: ("^scalar/",),
}
# What belongs to them is named when a graph is known; only numbers of a user have a pattern.
SESSION_COLLECTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            _KEYS.ALL,
            _KEYS.DEFAULT,
            _KEYS.WEIGHTS,
            _KEYS.BIASES,
            _KEYS.GRADIENTS,
            _KEYS.LOSSES,
            _KEYS.METRICS,
            _KEYS.INPUTS,
            _KEYS.OUTPUTS,
            _KEYS.LAYERS,
            _KEYS.OPTIMIZER_VARIABLES,
            _KEYS.SM_METRICS,
            _KEYS.SEARCHABLE_SCALARS,
        ),
        (),
    ),
    _KEYS.SCALARS: ("^scalar/",),
}
ALWAYS_SAVED = frozenset({_KEYS.LOSSES, _KEYS.METRICS, _KEYS.SM_METRICS, _KEYS.SEARCHABLE_SCALARS})


def without_output(name: str) -> str:
    """Returns a variable's name without the `:0` that TensorFlow ends it with."""
    return name.rsplit(":", 1)[0] if ":" in name else name


def gradient_name(variable: str) -> str:
    """Returns the name of the gradient of a variable.

    Example:
        >>> gradient_name("dense/kernel:0")
        'gradients/dense/kernelGrad'
    """
    return f"{GRADIENT_PREFIX}{without_output(variable)}Grad"


def numbered(name: str, count: int) -> list[str]:
    """Returns the names of so many tensors of one kind: one alone has no number.

    Example:
        >>> numbered("labels", 1), numbered("labels", 2)
        (['labels'], ['labels_0', 'labels_1'])
    """
    return [name] if count == 1 else [f"{name}_{place}" for place in range(count)]
