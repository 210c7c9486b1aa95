"""The hook of this process and its collections, as functions of the module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.hook.module_api import ModuleApi, del_hook, set_hook
from smdebug.pytorch.collection import Collection
from smdebug.pytorch.hook import Hook

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

_process = ModuleApi(Hook, Collection)


def get_hook(
    json_config_path: JsonConfigSource | None = None, create_if_not_exists: bool = False
) -> Hook | None:
    """Return the hook of this process.

    Args:
        json_config_path: the JSON config to create it from: a path, or a dict with its contents.
        create_if_not_exists: create it if there is none, from that config or from the file that
            `SMDEBUG_CONFIG_FILE_PATH` names.

    Returns:
        The hook; None when there is none, or when `USE_SMDEBUG` is false.

    Example:
        >>> get_hook() is None
        True
    """
    return _process.get_hook(json_config_path, create_if_not_exists)


get_collection = _process.get_collection
get_collections = _process.get_collections
add_to_collection = _process.add_to_collection
add_to_default_collection = _process.add_to_default_collection
reset_collections = _process.reset_collections
