"""The import paths of smdebug 1.0 that need a framework, and the names that scripts take of them.

Those without one are in tests/config/test_core_paths.py.
"""

from __future__ import annotations

import importlib

_COMMON = (
    "Collection CollectionKeys SaveConfig SaveConfigMode modes create_trial get_hook set_hook "
    "del_hook"
)
_SINGLETON = "get_hook set_hook del_hook"
PATHS = {
    "pytorch": {
        "smdebug.pytorch": f"Hook ReductionConfig {_COMMON}",
        "smdebug.pytorch.hook": "Hook",
        "smdebug.pytorch.collection": "Collection",
        "smdebug.pytorch.singleton_utils": _SINGLETON,
    },
    "mxnet": {
        "smdebug.mxnet": f"Hook ReductionConfig {_COMMON}",
        "smdebug.mxnet.hook": "Hook",
        "smdebug.mxnet.collection": "Collection",
        "smdebug.mxnet.singleton_utils": _SINGLETON,
    },
    "xgboost": {
        "smdebug.xgboost": f"Hook {_COMMON}",
        "smdebug.xgboost.hook": "Hook",
        "smdebug.xgboost.collection": "Collection",
        "smdebug.xgboost.singleton_utils": _SINGLETON,
    },
    "tensorflow": {
        "smdebug.tensorflow": f"KerasHook SessionHook EstimatorHook ReductionConfig {_COMMON}",
        "smdebug.tensorflow.keras": "KerasHook",
        "smdebug.tensorflow.session": "SessionHook",
        "smdebug.tensorflow.collection": "Collection",
        "smdebug.tensorflow.singleton_utils": _SINGLETON,
    },
}


def missing_paths(framework: str) -> list[str]:
    """The names that are not where they were, or are something else than those of the package."""
    package = importlib.import_module(f"smdebug.{framework}")
    found = [
        (module, name, getattr(importlib.import_module(module), name, None))
        for module, names in PATHS[framework].items()
        for name in names.split()
    ]
    return [
        f"{module}.{name}"
        for module, name, thing in found
        if thing is None or thing is not getattr(package, name, thing)
    ]
