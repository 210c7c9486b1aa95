"""The tensors that rules require of layers, such as the inputs of a model's ReLUs.

For models whose tensors are called `<layer>_input_<index>` and `<layer>_output_<index>`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.hook.rules.rule_collections import RuleCollection

MODEL, LOSS = "model", "loss"
# A loss may be called with keyword arguments, which have these names in the frameworks.
_LOSS_ARGUMENTS = {0: "0|input|logits|predictions?", 1: "1|target|labels?"}


def include_layers(collection: RuleCollection, layers: Iterable[tuple[str, str]]) -> set[str]:
    """Add the layers of a model that rules require to their collection.

    Args:
        collection: the collection.
        layers: the name and kind of each: "relu", "embedding", or `MODEL` for the model itself.

    Returns:
        The regexes that were included.
    """
    known = list(layers)
    regexes = set()
    for need in collection.needs:
        names = [name for name, kind in known if kind in need.layers]
        if names:
            regexes.add(_include(collection, names, need, str(need.index)))
    return regexes


def include_loss(collection: RuleCollection, name: str) -> None:
    """Add the arguments or the result of a registered loss, where rules require them."""
    for need in collection.needs:
        if LOSS in need.layers:
            index = "" if need.index is None else _LOSS_ARGUMENTS.get(need.index, str(need.index))
            _include(collection, [name], need, index)


def _include(
    collection: RuleCollection, layers: list[str], need: TensorRequirement, index: str
) -> str:
    # One regex for all layers, because each is matched with the name of every tensor.
    names = "|".join(map(re.escape, layers))
    end = "" if need.index is None else f"({index})$"
    regex = f"^(?:{names})_{need.tensor}_{end}"
    collection.include(regex)
    return regex
