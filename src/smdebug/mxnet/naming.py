"""Names of Gluon blocks, and the default collections, whose regexes match tensor names."""

from __future__ import annotations

from typing import Any

from smdebug.config.collection import CollectionKeys

DEFAULT_COLLECTIONS: dict[str, tuple[str, ...]] = {
    CollectionKeys.ALL: (),
    CollectionKeys.DEFAULT: (),
    CollectionKeys.WEIGHTS: ("^(?!gradient).*weight",),
    CollectionKeys.BIASES: ("^(?!gradient).*bias",),
    CollectionKeys.GRADIENTS: ("^gradient",),
    # smdebug 1.0 allowed one character after `loss` and missed the eleventh loss of a process.
    CollectionKeys.LOSSES: (r".*loss(.|\d*)_(?!input).*output",),
    CollectionKeys.SCALARS: ("^scalar",),
}
# The collection that lists parameters with `grad_req="null"`.
FROZEN_PARAMETERS = "frozen_parameters"


def block_name(block: Any) -> str:
    """Return the name of a block, or that of its class where the prefix is empty."""
    return str(block.name or type(block).__name__.lower())
