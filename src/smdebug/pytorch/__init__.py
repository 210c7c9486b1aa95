"""Tornasole for PyTorch.

import smdebug.pytorch as smd

hook = smd.Hook("runs/first", include_collections=["gradients"])
hook.register_module(model)
hook.register_loss(loss_function)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from smdebug.config.collection import CollectionKeys
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.mode_keys import ModeKeys as modes
from smdebug.pytorch.collection import Collection
from smdebug.pytorch.hook import Hook, TornasoleHook
from smdebug.pytorch.singleton_utils import (
    add_to_collection,
    add_to_default_collection,
    del_hook,
    get_collection,
    get_collections,
    get_hook,
    reset_collections,
    set_hook,
)
from smdebug.trials import create_trial

if TYPE_CHECKING:
    from smdebug.pytorch.huggingface import TrainerCallback as TrainerCallback
    from smdebug.pytorch.lightning import LightningCallback as LightningCallback

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "TornasoleHook",
    "add_to_collection",
    "add_to_default_collection",
    "create_trial",
    "del_hook",
    "get_collection",
    "get_collections",
    "get_hook",
    "modes",
    "reset_collections",
    "set_hook",
]

# Not in __all__: their base classes are in optional packages.
_LATE = {"TrainerCallback": "huggingface", "LightningCallback": "lightning"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"smdebug.pytorch.{_LATE[name]}"), name)
