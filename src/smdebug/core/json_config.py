"""The import path `smdebug.core.json_config` of smdebug 1.0: pieces of reading a job file."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from smdebug.config import environment
from smdebug.config.job_file import DEFAULT_SAGEMAKER_OUTDIR, parse_job_file, read_json_object
from smdebug.core.config_constants import CONFIG_FILE_PATH_ENV_STR

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from smdebug.config.collection_manager import CollectionManager

__all__ = [
    "CONFIG_FILE_PATH_ENV_STR",
    "DEFAULT_SAGEMAKER_OUTDIR",
    "add_collections_to_manager",
    "collect_hook_config_params",
    "get_include_collections",
    "get_json_config_as_dict",
]


def get_json_config_as_dict(json_config_path: str | Path | None = None) -> dict[str, Any]:
    """Returns the parsed job file; `SMDEBUG_CONFIG_FILE_PATH` names it when the path is None."""
    return read_json_object(json_config_path or environment.config_file_path())


def get_include_collections(config: Mapping[str, Any]) -> list[str]:
    """Returns the names of the collections that a parsed job file lists.

    Example:
        >>> get_include_collections({"CollectionConfigurations": [{"CollectionName": "weights"}]})
        ['weights']
    """
    return list(parse_job_file(config).options.include_collections)


def collect_hook_config_params(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of the hook that a parsed job file describes."""
    options = parse_job_file(config).options
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}


def add_collections_to_manager(manager: CollectionManager, config: Mapping[str, Any]) -> None:
    """Lays the collections of a parsed job file over those of a manager."""
    for collection in parse_job_file(config).collections:
        manager.overlay(collection)
