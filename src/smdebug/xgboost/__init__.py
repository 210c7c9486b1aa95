"""Tornasole for XGBoost.

import smdebug.xgboost as smd

hook = smd.Hook("runs/first", include_collections=["feature_importance"])
xgboost.train(params, train, evals=[(train, "train")], callbacks=[hook])
"""

from smdebug.config.collection import Collection, CollectionKeys
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.mode_keys import ModeKeys as modes
from smdebug.trials import create_trial
from smdebug.xgboost.hook import Hook, TornasoleHook
from smdebug.xgboost.singleton_utils import (
    add_to_collection,
    add_to_default_collection,
    del_hook,
    get_collection,
    get_collections,
    get_hook,
    reset_collections,
    set_hook,
)

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
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
