"""What rules need of layers: which tensors of a model are the outputs of its ReLUs, and so on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.hook.rule_collections import RuleCollection
    from smdebug.tensorflow.layers import ModelNames

_MODEL, _LOSS = "model", "loss"
# What a loss is given, in order.
_LOSS_INPUTS = ("predictions", "labels")


def include_layers(fed: RuleCollection, names: ModelNames) -> None:
    """Adds the layers of a model that rules need to their collection."""
    for need in fed.needs:
        bases = [
            f"{re.escape(name)}/{need.tensor}s"
            for layer, name in names.named_layers
            if _kinds(layer, need.tensor) & set(need.layers)
        ]
        if _MODEL in need.layers:
            bases.append("inputs" if need.tensor == "input" else "predictions")
        if _LOSS in need.layers:
            bases += _of_the_loss(need)
        if bases:
            # One for all layers: each is matched with the name of every tensor.
            end = r"(_\d+)?" if need.index is None else f"(_{need.index})?"
            fed.include(f"^(?:{'|'.join(bases)}){end}$")


def _of_the_loss(need: TensorRequirement) -> list[str]:
    if need.tensor == "output":
        return ["loss"]
    return list(_LOSS_INPUTS) if need.index is None else [_LOSS_INPUTS[need.index]]


def _kinds(layer: Any, tensor: str) -> set[str]:
    """What a layer is: its class, and the activation that it ends with."""
    kind = type(layer).__name__.lower()
    activation = getattr(getattr(layer, "activation", None), "__name__", "")
    # What goes into an activation inside of another layer is not seen.
    inside = kind != "activation" and tensor == "input"
    return {kind} if inside else {kind, activation.replace("_", "").lower()}
