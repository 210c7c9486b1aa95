"""What rules need of layers: which tensors of a model are the inputs of its ReLUs, and so on.

For models whose tensors are called `<layer>_input_<place>` and `<layer>_output_<place>`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.hook.rule_collections import RuleCollection

MODEL, LOSS = "model", "loss"
# A loss may be called with keywords; these are what frameworks call its arguments.
_LOSS_PLACES = {0: "0|input|logits|predictions?", 1: "1|target|labels?"}


def include_layers(fed: RuleCollection, layers: Iterable[tuple[str, str]]) -> set[str]:
    """Adds the layers of a model that rules need to their collection.

    Args:
        fed: the collection.
        layers: what each is called, and of which kind it is: "relu", "embedding", or `MODEL` for
            the model itself.

    Returns:
        The regexes that name them.
    """
    known = list(layers)
    regexes = set()
    for need in fed.needs:
        names = [name for name, kind in known if kind in need.layers]
        if names:
            regexes.add(_include(fed, names, need, str(need.index)))
    return regexes


def include_loss(fed: RuleCollection, name: str) -> None:
    """Adds what a registered loss takes or returns, where rules need it."""
    for need in fed.needs:
        if LOSS in need.layers:
            place = "" if need.index is None else _LOSS_PLACES.get(need.index, str(need.index))
            _include(fed, [name], need, place)


def _include(fed: RuleCollection, layers: list[str], need: TensorRequirement, place: str) -> str:
    # One for all layers: each is matched with the name of every tensor.
    names = "|".join(map(re.escape, layers))
    end = "" if need.index is None else f"({place})$"
    regex = f"^(?:{names})_{need.tensor}_{end}"
    fed.include(regex)
    return regex
