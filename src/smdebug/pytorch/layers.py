"""What rules need of layers: which tensors of a model are the inputs of its ReLUs, and so on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smdebug.config.need import Need
    from smdebug.hook.feed import Fed
    from smdebug.pytorch.registration import Registration

MODEL, LOSS = "model", "loss"
# A loss may be called with keywords; these are what torch calls its arguments.
_LOSS_PLACES = {0: "0|input|logits|predictions?", 1: "1|target|labels?"}


def include_layers(fed: Fed, registration: Registration) -> set[str]:
    """Adds the layers of a registered module that rules need to their collection.

    Returns:
        The regexes that name them.
    """
    regexes = set()
    for need in fed.needs:
        paths = []
        for path, module in registration.modules.items():
            kind = MODEL if path == registration.name else type(module).__name__.lower()
            if kind in need.layers:
                paths.append(path)
        if paths:
            regexes.add(_include(fed, paths, need, str(need.index)))
    return regexes


def include_loss(fed: Fed, name: str) -> None:
    """Adds what a registered loss takes or returns, where rules need it."""
    for need in fed.needs:
        if LOSS in need.layers:
            place = "" if need.index is None else _LOSS_PLACES.get(need.index, str(need.index))
            _include(fed, [name], need, place)


def _include(fed: Fed, paths: list[str], need: Need, place: str) -> str:
    # One for all layers: each is matched with the name of every tensor.
    names = "|".join(map(re.escape, paths))
    end = "" if need.index is None else f"({place})$"
    regex = f"^(?:{names})_{need.tensor}_{end}"
    fed.include(regex)
    return regex
