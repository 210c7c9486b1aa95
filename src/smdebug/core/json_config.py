"""The import path `smdebug.core.json_config` of smdebug 1.0: parts of reading a JSON config."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from smdebug.config import environment
from smdebug.config.json_config import parse_json_config, read_json_object, unwrapped
from smdebug.config.options import DEFAULT_SAGEMAKER_OUTDIR
from smdebug.core.config_constants import CONFIG_FILE_PATH_ENV_STR

if TYPE_CHECKING:
    from pathlib import Path

    from smdebug.config.collection_manager import CollectionManager
    from smdebug.config.json_config import JsonConfigSource

__all__ = [
    "CONFIG_FILE_PATH_ENV_STR",
    "DEFAULT_SAGEMAKER_OUTDIR",
    "add_collections_to_manager",
    "collect_hook_config_params",
    "create_hook_from_json_config",
    "get_include_collections",
    "get_json_config_as_dict",
]


class _HookClass(Protocol):
    @classmethod
    def create_from_json_file(
        cls: type[_Hook], json_file_path: JsonConfigSource | None = None
    ) -> _Hook: ...


_Hook = TypeVar("_Hook", bound=_HookClass)


def get_json_config_as_dict(json_config_path: str | Path | None = None) -> dict[str, Any]:
    """Return a parsed JSON config; `SMDEBUG_CONFIG_FILE_PATH` names it when the path is None."""
    return read_json_object(json_config_path or environment.config_file_path())


def get_include_collections(params_dict: Mapping[str, Any]) -> list[str]:
    """Return the names of the collections that a parsed JSON config lists.

    Example:
        >>> get_include_collections({"CollectionConfigurations": [{"CollectionName": "weights"}]})
        ['weights']
    """
    return list(parse_json_config(params_dict).options.include_collections)


def collect_hook_config_params(params_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the hook that a parsed JSON config describes."""
    options = parse_json_config(params_dict).options
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}


def add_collections_to_manager(
    collection_manager: CollectionManager,
    params_dict: Mapping[str, Any],
    hook_params: Mapping[str, Any] | None = None,
) -> None:
    """Merge the collections of a parsed JSON config into those of a manager.

    Args:
        collection_manager: the manager.
        params_dict: the parsed JSON config.
        hook_params: what `collect_hook_config_params` returned; its schedule is the one of
            collections that have none, which is otherwise left open for a hook to fill in.
    """
    for collection in parse_json_config(params_dict).collections:
        if hook_params is not None and collection.save_config is None:
            collection.save_config = hook_params.get("save_config")
        collection_manager.overlay(collection)


def create_hook_from_json_config(
    hook_cls: type[_Hook],
    json_config_path: JsonConfigSource | None = None,
    default_values: Mapping[str, Any] | None = None,
) -> _Hook:
    """Make a hook of a class from a JSON config.

    Args:
        hook_cls: the class, such as `smdebug.pytorch.Hook`.
        json_config_path: the file, or a dict with what would be in it; as `create_from_json_file`
            takes it.
        default_values: parameters of the hook where the file gives none, such as
            `{"save_interval": 10}`.

    Example:
        >>> create_hook_from_json_config(smd.Hook, "job.json")  # doctest: +SKIP
    """
    if not default_values:
        return hook_cls.create_from_json_file(json_config_path)
    config = json_config_path
    if not isinstance(config, Mapping):
        config = get_json_config_as_dict(config)
    config = unwrapped(config)
    given = {key: value for key, value in (config.get("HookParameters") or {}).items()
             if value is not None}  # fmt: skip
    parameters = {**default_values, **given}
    return hook_cls.create_from_json_file({**config, "HookParameters": parameters})
