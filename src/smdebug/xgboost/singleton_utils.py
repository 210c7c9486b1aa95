"""The hook of this process and its collections, as functions of the module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.hook.current import del_hook, set_hook
from smdebug.hook.process import ProcessHook
from smdebug.xgboost.hook import Hook

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.config.collection import Collection

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

_process = ProcessHook(Hook)


def get_hook(json_config_path: str | Path | None = None) -> Hook | None:
    """Returns the hook of this process; when there is none, the one that a job file describes.

    Args:
        json_config_path: the job file; the place that `SMDEBUG_CONFIG_FILE_PATH` names when None.

    Returns:
        The hook; None when there is neither hook nor file, or when `USE_SMDEBUG` is false.

    Example:
        >>> get_hook() is None
        True
    """
    return _process.get_hook(json_config_path, create=True)


def get_collection(name: str) -> Collection:
    """Returns a collection of the hook of this process; before there is one, of those to come."""
    return _process.manager().get(name)


def get_collections() -> dict[str, Collection]:
    """Returns all collections that `get_collection` finds."""
    return _process.manager().get_collections()


def add_to_collection(collection_name: str, args: Any) -> None:
    """Adds names of tensors to a collection."""
    _process.manager().get(collection_name).add(args)


def add_to_default_collection(args: Any) -> None:
    """Adds names of tensors to the collection `default`."""
    add_to_collection("default", args)


def reset_collections() -> None:
    """Gives the hooks to come the collections they have from the start."""
    _process.reset()
