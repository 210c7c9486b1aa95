"""The tensors of layers that rules require, such as the outputs of all ReLUs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.hook.rules.rule_collections import RuleCollection
    from smdebug.tensorflow.keras.layers import ModelNames

_MODEL, _LOSS = "model", "loss"
# The inputs of a loss, in order.
_LOSS_INPUTS = ("predictions", "labels")


def include_layers(target: RuleCollection, names: ModelNames) -> None:
    """Add the tensors of layers that rules require to their collection."""
    for need in target.needs:
        bases = [
            f"{re.escape(name)}/{need.tensor}s"
            for layer, name in names.named_layers
            if _kinds(layer, need.tensor) & set(need.layers)
        ]
        if _MODEL in need.layers:
            bases.append("inputs" if need.tensor == "input" else "predictions")
        if _LOSS in need.layers:
            bases += _loss_tensors(need)
        if bases:
            # One regex for all layers: each regex is matched with the name of every tensor.
            end = r"(_\d+)?" if need.index is None else f"(_{need.index})?"
            target.include(f"^(?:{'|'.join(bases)}){end}$")


def _loss_tensors(need: TensorRequirement) -> list[str]:
    if need.tensor == "output":
        return ["loss"]
    return list(_LOSS_INPUTS) if need.index is None else [_LOSS_INPUTS[need.index]]


def _kinds(layer: Any, tensor: str) -> set[str]:
    """Return the kinds of a layer: its class, and the activation at its end."""
    kind = type(layer).__name__.lower()
    activation = getattr(getattr(layer, "activation", None), "__name__", "")
    # The input of an activation inside another layer is not visible.
    inside = kind != "activation" and tensor == "input"
    return {kind} if inside else {kind, activation.replace("_", "").lower()}
