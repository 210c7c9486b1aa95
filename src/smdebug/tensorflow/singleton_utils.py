"""The hook of this process and its collections, as functions of the module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.config import validation
from smdebug.exceptions import SMDebugValueError
from smdebug.hook.module_api import ModuleApi, del_hook, set_hook
from smdebug.tensorflow.collection import Collection
from smdebug.tensorflow.hook import TensorflowHook
from smdebug.tensorflow.keras import KerasHook
from smdebug.tensorflow.session import SessionHook

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

_process = ModuleApi(TensorflowHook, Collection)
_kinds: dict[str, type[TensorflowHook]] = {
    "keras": KerasHook,
    "session": SessionHook,
    "estimator": SessionHook,
}


def get_hook(
    hook_type: str | None = None,
    json_config_path: JsonConfigSource | None = None,
    create_if_not_exists: bool = False,
) -> TensorflowHook | None:
    """Return the hook of this process.

    Args:
        hook_type: `"keras"`, `"session"` or `"estimator"`: a hook of another kind is dropped; None
            for a hook of either kind.
        json_config_path: the JSON config to create it from: a path, or a dict with its contents.
        create_if_not_exists: create it from that config, or from the file that
            `SMDEBUG_CONFIG_FILE_PATH` names. Requires a `hook_type`.

    Returns:
        The hook; None when there is none, or when `USE_SMDEBUG` is false.

    Raises:
        SMDebugValueError: the type is unknown, or required and missing.

    Example:
        >>> get_hook() is None
        True
    """
    expected = ", ".join(repr(kind) for kind in _kinds)
    if hook_type is not None and hook_type not in _kinds:
        raise SMDebugValueError(
            f"hook_type must be one of {expected}, got {validation.short_repr(hook_type)}"
        )
    if hook_type is None and create_if_not_exists:
        raise SMDebugValueError(
            f"hook_type must be one of {expected} to create a hook, got None; pass one of them"
        )
    kind = None if hook_type is None else _kinds[hook_type]
    return _process.get_hook(json_config_path, create_if_not_exists, kind)


get_collection = _process.get_collection
get_collections = _process.get_collections
add_to_collection = _process.add_to_collection
add_to_default_collection = _process.add_to_default_collection
reset_collections = _process.reset_collections
