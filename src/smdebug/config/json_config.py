"""The JSON config: a hook and its collections, described outside the script."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdebug.config import environment, validation
from smdebug.config.collection import Collection, DefinedName
from smdebug.config.lenient_json import parse_json
from smdebug.config.options import DEFAULT_SAGEMAKER_OUTDIR, HookOptions
from smdebug.config.reduction_config import REDUCTION_FIELDS, ReductionConfig
from smdebug.config.save_config import (
    DEFAULT_SAVE_CONFIG_INTERVAL,
    SAVE_FIELDS,
    START_STEP_ALIAS,
    SaveConfig,
    SaveConfigMode,
    check_save_field,
)
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError
from smdebug.mode_keys import ModeKeys

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP_KEYS = ("LocalPath", "S3OutputPath", "HookParameters", "CollectionConfigurations")
# Where a request to SageMaker, or its description of a job, has the JSON config.
REQUEST_KEY = "DebugHookConfig"
COLLECTION_KEYS = ("CollectionName", "CollectionParameters")
_SCHEDULE_KEYS = (*SAVE_FIELDS, START_STEP_ALIAS)
_LIST_OPTIONS = ("include_regex", "include_collections")
# Arguments of a hook that stand in JSON as they are.
_PLAIN_OPTIONS = tuple(
    field.name
    for field in dataclasses.fields(HookOptions)
    if field.name not in ("out_dir", "reduction_config", "save_config", *_LIST_OPTIONS)
)
HOOK_PARAMETERS = (*_SCHEDULE_KEYS, *REDUCTION_FIELDS, *_LIST_OPTIONS, *_PLAIN_OPTIONS)
COLLECTION_PARAMETERS = (
    *(*_SCHEDULE_KEYS, *REDUCTION_FIELDS),
    *("include_regex", "exclude_regex", "save_histogram"),
)
MODE_KEYS = tuple(f"{mode.name.lower()}.{key}" for mode in ModeKeys for key in _SCHEDULE_KEYS)

# Other top-level keys are AWS's (RuleConfigurations, ...): only one that is very similar to one of
# ours is an error.
_NEAR_AT_TOP = 0.85

_logger = logging.getLogger("smdebug.config")

# A file, or a dict with its contents.
JsonConfigSource = str | Path | Mapping[str, Any]

# Fields of a save schedule by mode; None has those for all modes.
_Schedule = dict[ModeKeys | None, dict[str, Any]]


@dataclass(frozen=True)
class JsonConfig:
    """The contents of a JSON config.

    Attributes:
        options: the arguments of the hook; `include_collections` holds the listed collections.
        collections: the listed collections, to be merged into the framework's own
            (`CollectionManager.overlay`).
        path: the file.
    """

    options: HookOptions
    collections: tuple[Collection, ...]
    path: str


def read_json_config(
    source: JsonConfigSource | None = None,
    *,
    default_save_interval: int = DEFAULT_SAVE_CONFIG_INTERVAL,
) -> JsonConfig:
    """Read a JSON config.

    Args:
        source: the file, or a dict with its contents; when None, the file that
            `SMDEBUG_CONFIG_FILE_PATH` names, or the one where SageMaker puts it.
        default_save_interval: the save interval if the file has none (XGBoost's is 10).

    Raises:
        FileNotFoundError: there is no such file.
        SMDebugValueError: a key or a value is invalid; the message names the file and the key.

    Example:
        >>> read_json_config("job.json").options.save_config  # doctest: +SKIP
    """
    if isinstance(source, Mapping):
        return parse_json_config(source, "the dict", default_save_interval=default_save_interval)
    path = str(source or environment.config_file_path())
    return parse_json_config(
        read_json_object(path), path, default_save_interval=default_save_interval
    )


def parse_json_config(
    data: Mapping[str, Any],
    path: str = "JSON config",
    *,
    default_save_interval: int = DEFAULT_SAVE_CONFIG_INTERVAL,
) -> JsonConfig:
    """Make a JsonConfig from the parsed contents of a file; `path` is for error messages."""
    with _located(path):
        data = unwrapped(data)
        validation.unknown_keys(data, TOP_KEYS, _NEAR_AT_TOP)
        out_dir = _out_dir(data)
        params = _object("HookParameters", data.get("HookParameters"))
        entries = _entries(data.get("CollectionConfigurations"))
    with _located(f"{path}: HookParameters"):
        _warn_of_unknown(f"{path}: HookParameters", params, HOOK_PARAMETERS)
        hook = _schedule(params)
        # Without one, rules have save intervals of their own, as with a hook made in Python.
        save_config = _save_config([hook], default_save_interval) if hook else None
    collections = []
    for number, entry in enumerate(entries):
        name = _collection_name(f"{path}: CollectionConfigurations[{number}]", entry)
        collections.append(_collection(path, name, entry, hook, default_save_interval))
    names = [each.name if each.is_empty() else DefinedName(each.name) for each in collections]
    options = _options(f"{path}: HookParameters", params, out_dir, save_config, names)
    return JsonConfig(options.saving_every(default_save_interval), tuple(collections), path)


def unwrapped(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part about the hook of a request to SageMaker to create a training job.

    Example:
        >>> unwrapped({"TrainingJobName": "j", "DebugHookConfig": {"LocalPath": "run"}})
        {'LocalPath': 'run'}
    """
    inner = data.get(REQUEST_KEY)
    return data if inner is None else validation.mapping(REQUEST_KEY, inner)


def read_tensorboard_dir(path: str | Path | None = None) -> str | None:
    """Return the directory a TensorBoard configuration file names; None without a file."""
    return _local_path(path or environment.tensorboard_config_file_path())


def read_checkpoint_dir(path: str | Path | None = None) -> str | None:
    """Return the directory a checkpoint configuration file names; None without a file."""
    return _local_path(path or environment.checkpoint_config_file_path())


def read_json_object(path: str | Path) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Raises:
        FileNotFoundError: there is no such file.
        SMDebugValueError: it is not a JSON object; the message has the position in the file.
    """
    try:
        data = parse_json(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise SMDebugValueError(f"{path}: the file must be JSON, got: {error}") from error
    if not isinstance(data, dict):
        raise SMDebugValueError(
            f"{path}: the file must be a JSON object, got {type(data).__name__}"
        )
    return data


def _out_dir(data: Mapping[str, Any]) -> str:
    """Return the directory or URL of the run.

    In a SageMaker job it is a local directory, which the platform copies to `S3OutputPath`.
    Elsewhere nothing copies it, so the run is written to `S3OutputPath` itself.
    """
    keys = ("LocalPath",) if environment.in_sagemaker() else ("LocalPath", "S3OutputPath")
    for key in keys:
        if data.get(key) is not None:
            return validation.text(key, data[key])
    return DEFAULT_SAGEMAKER_OUTDIR


def _local_path(path: str | Path) -> str | None:
    try:
        local_path = read_json_object(path).get("LocalPath")
    except FileNotFoundError:
        return None
    with _located(str(path)):
        return None if local_path is None else validation.text("LocalPath", local_path)


def _options(
    where: str,
    params: Mapping[str, Any],
    out_dir: str,
    save_config: SaveConfig | None,
    names: list[str],
) -> HookOptions:
    given = {key: params[key] for key in _PLAIN_OPTIONS if params.get(key) is not None}
    with _located(where):
        lists = {key: validation.comma_list(key, params.get(key)) for key in _LIST_OPTIONS}
        return HookOptions(
            out_dir=out_dir,
            save_config=save_config,
            reduction_config=_reduction_config(where, params),
            include_regex=lists["include_regex"],
            include_collections=[*names, *lists["include_collections"]],
            **given,
        )


def _collection_name(where: str, entry: Mapping[str, Any]) -> str:
    with _located(where):
        validation.unknown_keys(entry, COLLECTION_KEYS, _NEAR_AT_TOP)
        return validation.text("CollectionName", entry.get("CollectionName"))


def _collection(
    path: str, name: str, entry: Mapping[str, Any], hook: _Schedule, default_save_interval: int
) -> Collection:
    where = f"{path}: collection {name!r}"
    with _located(where):
        params = _object("CollectionParameters", entry.get("CollectionParameters"))
    where = f"{where}: CollectionParameters"
    with _located(where):
        _warn_of_unknown(where, params, COLLECTION_PARAMETERS)
        own = _schedule(params)
        histogram = params.get("save_histogram")
        return Collection(
            name,
            include_regex=validation.comma_list("include_regex", params.get("include_regex")),
            exclude_regex=validation.comma_list("exclude_regex", params.get("exclude_regex")),
            reduction_config=_reduction_config(where, params),
            save_config=_save_config([hook, own], default_save_interval) if own else None,
            save_histogram=True if histogram is None else histogram,
        )


def _schedule(params: Mapping[str, Any]) -> _Schedule:
    """Return the fields of a save schedule among parameters, with and without a mode."""
    schedule: _Schedule = {}
    for key, value in params.items():
        mode_name, dot, field = key.rpartition(".")
        if field not in _SCHEDULE_KEYS or (dot and key not in MODE_KEYS):
            continue
        mode = ModeKeys[mode_name.upper()] if dot else None
        fields = schedule.setdefault(mode, {})
        field = "start_step" if field == START_STEP_ALIAS else field
        if field in fields:
            raise SMDebugValueError(
                f"{key} is another name of a parameter that is given as well, "
                f"got {validation.short_repr(value)}"
            )
        if field in ("save_steps", "when_nan") and value is not None:
            value = (
                _steps(key, value) if field == "save_steps" else validation.comma_list(key, value)
            )
        fields[field] = check_save_field(field, value, key)
    return schedule


def _steps(key: str, value: object) -> list[int]:
    if not isinstance(value, str | list):
        raise SMDebugValueError(
            f"{key} must be step numbers with commas or a list, got {validation.short_repr(value)}"
        )
    items = value.split(",") if isinstance(value, str) else value
    return [validation.whole_number(key, item) for item in items]


def _save_config(levels: list[_Schedule], default_save_interval: int) -> SaveConfig:
    """Merge schedules field by field; later levels win, and in one level the fields of a mode."""
    configs: dict[ModeKeys, SaveConfigMode | None] = {}
    for mode in ModeKeys:
        fields: dict[str, Any] = {}
        for level in levels:
            fields.update(level.get(None, {}))
            fields.update(level.get(mode, {}))
        if fields.get("save_interval") is None:
            fields["save_interval"] = default_save_interval
        with _located(f"mode {mode.name.lower()}"):
            configs[mode] = SaveConfigMode(**fields)
    return SaveConfig(configs)


def _reduction_config(where: str, params: Mapping[str, Any]) -> ReductionConfig | None:
    flags = [key for key in ("save_raw_tensor", "save_shape") if params.get(key) is not None]
    if params.get("reductions") is None:
        # As in smdebug 1.0: without `reductions` the tensor is saved raw, flags or not.
        if flags:
            names = " and ".join(flags)
            _logger.warning("%s: %s has no effect without reductions", where, names)
        return None
    values = {key: validation.boolean(key, params[key]) for key in flags}
    return ReductionConfig.from_dict({"reductions": params["reductions"], **values})


def _warn_of_unknown(where: str, params: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = validation.unknown_keys(params, (*known, *MODE_KEYS))
    if unknown:
        _logger.warning("%s: ignoring unknown keys: %s", where, ", ".join(unknown))


def _object(key: str, value: object) -> Mapping[str, Any]:
    return {} if value is None else validation.mapping(key, value)


def _entries(value: object) -> list[Mapping[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise SMDebugValueError(
            f"CollectionConfigurations must be a list, got {validation.short_repr(value)}"
        )
    return [
        validation.mapping(f"CollectionConfigurations[{number}]", entry)
        for number, entry in enumerate(value)
    ]


@contextlib.contextmanager
def _located(where: str) -> Iterator[None]:
    """Prefix the messages of errors; a wrong type in JSON is a wrong value."""
    try:
        yield
    except (SMDebugValueError, SMDebugTypeError) as error:
        raise SMDebugValueError(f"{where}: {error}") from error
