"""The package's older name; everything here is `smdebug`'s."""

from __future__ import annotations

from typing import Any

import smdebug
from smdebug import (
    Collection,
    CollectionKeys,
    ReductionConfig,
    SaveConfig,
    SaveConfigMode,
    __version__,
    modes,
)

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


def __getattr__(name: str) -> Any:
    if name == "create_trial":
        return smdebug.create_trial
    raise AttributeError(f"module 'tornasole' has no attribute {name!r}")
