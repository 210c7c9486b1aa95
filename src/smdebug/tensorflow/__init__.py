"""Tornasole for TensorFlow and Keras.

import smdebug.tensorflow as smd

hook = smd.KerasHook("runs/first", include_collections=["gradients"])
model.fit(images, labels, callbacks=[hook])
"""

from smdebug.config.collection import CollectionKeys
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.mode_keys import ModeKeys as modes
from smdebug.tensorflow.collection import Collection
from smdebug.tensorflow.keras import KerasHook
from smdebug.tensorflow.session import EstimatorHook, SessionHook
from smdebug.tensorflow.singleton_utils import (
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
    "EstimatorHook",
    "KerasHook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "SessionHook",
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
