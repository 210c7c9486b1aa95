"""Tornasole for MXNet.

import smdebug.mxnet as smd

hook = smd.Hook("runs/first", include_collections=["gradients"])
hook.register_block(net)
hook.register_block(loss_function)
"""

from smdebug.config.collection import CollectionKeys
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.mode_keys import ModeKeys as modes
from smdebug.mxnet.collection import Collection
from smdebug.mxnet.hook import Hook, TornasoleHook
from smdebug.mxnet.singleton_utils import (
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
