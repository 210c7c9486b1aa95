"""Tornasole: see inside a training job, while it runs or years later.

Importing this package loads no machine learning framework, no cloud library and no NumPy: its names
are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from smdebug._version import __version__
from smdebug.config.log import install_log, make_harmless

if TYPE_CHECKING:
    from smdebug.config.collection import Collection, CollectionKeys
    from smdebug.config.reduction_config import ReductionConfig
    from smdebug.config.save_config import SaveConfig, SaveConfigMode
    from smdebug.mode_keys import ModeKeys as modes
    from smdebug.trials.create import create_trial

__all__ = [
    "Collection",
    "CollectionKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "__version__",
    "create_trial",
    "modes",
]

# The module of each name, and what it is called there.
_LOCATIONS = {
    "Collection": ("smdebug.config.collection", "Collection"),
    "CollectionKeys": ("smdebug.config.collection", "CollectionKeys"),
    "ReductionConfig": ("smdebug.config.reduction_config", "ReductionConfig"),
    "SaveConfig": ("smdebug.config.save_config", "SaveConfig"),
    "SaveConfigMode": ("smdebug.config.save_config", "SaveConfigMode"),
    "create_trial": ("smdebug.trials.create", "create_trial"),
    "modes": ("smdebug.mode_keys", "ModeKeys"),
}

make_harmless()
install_log()


def __getattr__(name: str) -> Any:
    if name not in _LOCATIONS:
        raise AttributeError(f"module 'smdebug' has no attribute {name!r}")
    module, attribute = _LOCATIONS[name]
    # Stored, so that the next access does not come here.
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
