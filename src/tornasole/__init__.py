"""The package's older name; everything here is `smdebug`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import smdebug
from smdebug import __version__

if TYPE_CHECKING:
    from smdebug import (
        Collection,
        CollectionKeys,
        ReductionConfig,
        SaveConfig,
        SaveConfigMode,
        create_trial,
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
    if name not in __all__:
        raise AttributeError(f"module 'tornasole' has no attribute {name!r}")
    return getattr(smdebug, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
