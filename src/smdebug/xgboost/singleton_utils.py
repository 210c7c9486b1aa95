"""The module-level functions for the hook of this process and its collections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.config.collection import Collection
from smdebug.hook.module_api import ModuleApi, del_hook, set_hook
from smdebug.xgboost.hook import Hook

if TYPE_CHECKING:
    from smdebug.config.json_config import JsonConfigSource

__all__ = [
    "add_to_collection",
    "add_to_default_collection",
    "del_hook",
    "get_collection",
    "get_collections",
    "get_hook",
    "reset_collections",
    "set_hook",
]

_api = ModuleApi(Hook, Collection)


def get_hook(json_config_path: JsonConfigSource | None = None) -> Hook | None:
    """Return the hook of this process; if there is none, create the one of a JSON config.

    Args:
        json_config_path: the file, or a dict with its contents; when None, the file that
            `SMDEBUG_CONFIG_FILE_PATH` names, or the one where SageMaker puts it.

    Returns:
        The hook; None when there is neither a hook nor a file, or `USE_SMDEBUG` is false.

    Example:
        >>> get_hook() is None
        True
    """
    return _api.get_hook(json_config_path, create=True)


get_collection = _api.get_collection
get_collections = _api.get_collections
add_to_collection = _api.add_to_collection
add_to_default_collection = _api.add_to_default_collection
reset_collections = _api.reset_collections
