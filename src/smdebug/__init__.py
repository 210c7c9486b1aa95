"""Tornasole: see inside a training job, while it runs or years later.

Importing this package loads no machine learning framework and no cloud library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug._version import __version__
from smdebug.config.collection import Collection, CollectionKeys
from smdebug.config.log import install_log, make_harmless
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.mode_keys import ModeKeys as modes

if TYPE_CHECKING:
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

make_harmless()
install_log()


def __getattr__(name: str) -> Any:
    # Reading needs pyarrow; scripts that only configure a hook should not wait for it.
    if name == "create_trial":
        from smdebug.trials.create import create_trial

        return create_trial
    raise AttributeError(f"module 'smdebug' has no attribute {name!r}")
