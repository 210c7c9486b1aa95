"""The hook of this process and its collections, as functions of the module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from smdebug.hook.current import del_hook, set_hook
from smdebug.hook.process import ProcessHook
from smdebug.pytorch.hook import Hook

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.config.collection import Collection as BaseCollection
    from smdebug.pytorch.collection import Collection

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


def get_hook(
    json_config_path: str | Path | None = None, create_if_not_exists: bool = False
) -> Hook | None:
    """Returns the hook of this process.

    Args:
        json_config_path: the job file to make it from.
        create_if_not_exists: make it, from that file or from the place that
            `SMDEBUG_CONFIG_FILE_PATH` names, when there is none.

    Returns:
        The hook; None when there is none, or when `USE_SMDEBUG` is false.

    Example:
        >>> get_hook() is None
        True
    """
    return _process.get_hook(json_config_path, create_if_not_exists)


def get_collection(name: str) -> Collection:
    """Returns a collection of the hook of this process; before there is one, of those to come."""
    return cast("Collection", _process.manager().get(name))


def get_collections() -> dict[str, BaseCollection]:
    """Returns all collections that `get_collection` finds."""
    return _process.manager().get_collections()


def add_to_collection(collection_name: str, args: Any) -> None:
    """Adds names, parameters or modules to a collection."""
    _process.manager().get(collection_name).add(args)


def add_to_default_collection(args: Any) -> None:
    """Adds names, parameters or modules to the collection `default`."""
    add_to_collection("default", args)


def reset_collections() -> None:
    """Gives the hooks to come the collections they have from the start."""
    _process.reset()
