"""When to save: a save schedule for each mode."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from smdebug.config import validation
from smdebug.config.lenient_json import parse_strictly
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError
from smdebug.mode_keys import ModeKeys

DEFAULT_SAVE_CONFIG_INTERVAL = 500
DEFAULT_SAVE_CONFIG_START_STEP = 0
DEFAULT_SAVE_CONFIG_END_STEP = None
DEFAULT_SAVE_CONFIG_SAVE_STEPS: list[int] = []

# The fields of a save schedule in dicts and JSON, and the older name of one of them.
SAVE_FIELDS = ("save_interval", "start_step", "end_step", "save_steps", "when_nan")
START_STEP_ALIAS = "skip_num_steps"

_MODE_NAMES = frozenset(ModeKeys.__members__)
_logger = logging.getLogger("smdebug.config")


def check_save_field(field: str, value: object, key: str | None = None) -> Any:
    """Return one field of a schedule in its final type; None stays None.

    Args:
        field: one of `SAVE_FIELDS`.
        value: its value.
        key: the name of the field in error messages.

    Example:
        >>> check_save_field("save_interval", "5")
        5
    """
    key = key or field
    if value is None:
        return None
    if field == "save_steps":
        return validation.step_list(key, value)
    if field == "when_nan":
        return _patterns(key, value)
    return validation.whole_number(key, value, minimum=1 if field == "save_interval" else 0)


def _patterns(key: str, value: object) -> list[str]:
    try:
        patterns = validation.names(key, value)
    except SMDebugTypeError as error:
        raise SMDebugValueError(str(error)) from error
    for pattern in patterns:
        validation.regex(key, pattern)
    return patterns


@dataclass(frozen=True, init=False, repr=False)
class SaveConfigMode:
    """The steps to save in one mode.

    A step is saved if it is in `save_steps`, or if it is a multiple of `save_interval` with
    `start_step <= step < end_step`. With `end_step=0` nothing is saved.

    Args:
        save_interval: every how many steps to save; 500 when None.
        start_step: the first step to save; 0 when None.
        end_step: the step before which saving stops; never when None.
        save_steps: further steps to save, not subject to the other arguments.
        when_nan: regexes of tensors; a step in which one of them is not finite is saved.
        skip_num_steps: older name of `start_step`.

    Raises:
        SMDebugValueError: a value is invalid.

    Example:
        >>> mode = SaveConfigMode(save_interval=5, start_step=3, end_step=12, save_steps=[1, 13])
        >>> [step for step in range(20) if mode.should_save_step(step)]
        [1, 5, 10, 13]
    """

    save_interval: int
    start_step: int
    end_step: int | None
    _save_steps: tuple[int, ...]
    _step_set: frozenset[int]
    when_nan: tuple[str, ...]

    def __init__(
        self,
        save_interval: int | str | None = None,
        start_step: int | str | None = None,
        end_step: int | str | None = None,
        save_steps: list[int] | None = None,
        when_nan: Any = None,
        skip_num_steps: int | str | None = None,
    ) -> None:
        start_key = "start_step" if skip_num_steps is None else START_STEP_ALIAS
        if skip_num_steps is not None:
            if start_step is not None:
                raise SMDebugValueError(
                    "start_step and skip_num_steps must not be given together, they are the same; "
                    f"got {validation.short_repr(start_step)} "
                    f"and {validation.short_repr(skip_num_steps)}"
                )
            start_step = skip_num_steps
        start = check_save_field("start_step", start_step, start_key)
        end = check_save_field("end_step", end_step)
        start = DEFAULT_SAVE_CONFIG_START_STEP if start is None else start
        # 0 switches a collection that is saved by default off.
        if end and end < start:
            raise SMDebugValueError(
                f"end_step must be 0 (save nothing) or at least {start_key}, "
                f"got end_step={end} with {start_key}={start}"
            )
        interval = check_save_field("save_interval", save_interval)
        interval = DEFAULT_SAVE_CONFIG_INTERVAL if interval is None else interval
        object.__setattr__(self, "save_interval", interval)
        object.__setattr__(self, "start_step", start)
        object.__setattr__(self, "end_step", end)
        steps = check_save_field("save_steps", save_steps)
        object.__setattr__(self, "_save_steps", tuple(steps or ()))
        # Searched at every step; the list may be long.
        object.__setattr__(self, "_step_set", frozenset(steps or ()))
        object.__setattr__(self, "when_nan", tuple(check_save_field("when_nan", when_nan) or ()))

    @property
    def save_steps(self) -> list[int]:
        """The further steps to save (a copy)."""
        return list(self._save_steps)

    def should_save_step(self, step: int) -> bool:
        """Return whether this step is to be saved."""
        if step in self._step_set:
            return True
        before_end = self.end_step is None or step < self.end_step
        return self.start_step <= step and before_end and step % self.save_interval == 0

    def next_save_step(self, step: int) -> int | None:
        """Return the first step after `step` that the schedule names; None without one.

        Example:
            >>> SaveConfigMode(save_interval=5, end_step=12, save_steps=[13]).next_save_step(10)
            13
        """
        following = max(step + 1, self.start_step)
        following += -following % self.save_interval
        found = [each for each in self._save_steps if each > step]
        if self.end_step is None or following < self.end_step:
            found.append(following)
        return min(found, default=None)

    def watches(self, tensor_name: str) -> bool:
        """Return whether `when_nan` names this tensor."""
        return any(re.search(pattern, tensor_name) for pattern in self.when_nan)

    @classmethod
    def from_dict(
        cls, params: Mapping[str, Any], default_values: Mapping[str, Any] | None = None
    ) -> SaveConfigMode:
        """Make a save schedule from its fields, with `default_values` for the others."""
        known = (*SAVE_FIELDS, START_STEP_ALIAS)
        # A file of a later version may have other keys, which are ignored.
        validation.unknown_keys(params, known)
        given = {key: value for key, value in params.items() if key in known}
        defaults = dict(default_values or {})
        if START_STEP_ALIAS in given:
            defaults.pop("start_step", None)
        return cls(**{**defaults, **given})

    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields with the names of smdebug 1.0; `when_nan` only if it is set."""
        fields: dict[str, Any] = {
            "save_interval": self.save_interval,
            "save_steps": self.save_steps,
            "start_step": self.start_step,
            "end_step": self.end_step,
        }
        if self.when_nan:
            fields["when_nan"] = list(self.when_nan)
        return fields

    def to_json(self) -> str:
        """Return the fields as JSON."""
        return json.dumps(self.to_json_dict())

    def __repr__(self) -> str:
        fields = ", ".join(f"{key}={value!r}" for key, value in self.to_json_dict().items())
        return f"SaveConfigMode({fields})"


class SaveConfig:
    """The steps to save, for every mode.

    A mode may be None: a collection then uses the hook's schedule, and a hook the defaults.

    Args:
        mode_save_configs: a schedule for each mode. Without it all modes have the same one, made
            from the other arguments (see `SaveConfigMode`).

    Raises:
        SMDebugValueError: a key is not a mode, or a value is not a schedule.

    Example:
        >>> config = SaveConfig({ModeKeys.TRAIN: SaveConfigMode(save_interval=10)})
        >>> config.should_save_step(ModeKeys.TRAIN, 10), config.should_save_step(ModeKeys.EVAL, 10)
        (True, False)
    """

    mode_save_configs: dict[ModeKeys, SaveConfigMode | None]

    def __init__(
        self,
        mode_save_configs: Mapping[ModeKeys, SaveConfigMode | None] | None = None,
        save_interval: int | str | None = None,
        start_step: int | str | None = None,
        end_step: int | str | None = None,
        save_steps: list[int] | None = None,
        when_nan: Any = None,
        skip_num_steps: int | str | None = None,
    ) -> None:
        fields = (save_interval, start_step, end_step, save_steps, when_nan, skip_num_steps)
        if mode_save_configs is None:
            everywhere = SaveConfigMode(*fields)
            self.mode_save_configs = dict.fromkeys(ModeKeys, everywhere)
            return
        if any(field is not None for field in fields):
            _logger.warning(
                "SaveConfig: ignoring the other arguments, because mode_save_configs is given"
            )
        self.mode_save_configs = dict.fromkeys(ModeKeys)
        for mode, config in validation.mapping("mode_save_configs", mode_save_configs).items():
            if config is None:
                _check_mode(mode)
            else:
                self.set_save_config(mode, config)  # type: ignore[arg-type]  # checked there

    @classmethod
    def parse(cls, params: object) -> SaveConfig:
        """Make a SaveConfig from the argument of a hook.

        Args:
            params: None (the defaults), a SaveConfig, a SaveConfigMode (for all modes) or a dict
                as `from_dict` takes it.

        Raises:
            SMDebugTypeError: anything else.
        """
        if params is None:
            return cls()
        if isinstance(params, SaveConfig):
            return params
        if isinstance(params, SaveConfigMode):
            return cls.from_save_config_mode(params)
        if isinstance(params, Mapping):
            return cls.from_dict(params)
        raise SMDebugTypeError(
            "save_config must be a SaveConfig, a SaveConfigMode or a dict, "
            f"got {validation.short_repr(params)} of type {type(params).__name__}"
        )

    @classmethod
    def from_save_config_mode(cls, save_config_mode: SaveConfigMode) -> SaveConfig:
        """Make a SaveConfig with one schedule for all modes."""
        return cls(dict.fromkeys(ModeKeys, save_config_mode))

    @classmethod
    def from_dict(
        cls, params: Mapping[Any, Any], default_values: Mapping[str, Any] | None = None
    ) -> SaveConfig:
        """Make a SaveConfig from a dict.

        Args:
            params: the fields of one schedule for all modes, or modes (`ModeKeys.TRAIN`,
                `"TRAIN"`, `"train"`), each with a SaveConfigMode, a dict of fields or None.
            default_values: defaults of the fields.

        Example:
            >>> config = SaveConfig.from_dict({"save_interval": 4})
            >>> config == SaveConfig(save_interval=4)
            True
        """
        params = validation.mapping("save_config", params)
        known = (*SAVE_FIELDS, START_STEP_ALIAS)
        if not params or all(key in known for key in params):
            return cls.from_save_config_mode(SaveConfigMode.from_dict(params, default_values))
        named = (key for key in params if isinstance(key, str) and key.upper() not in _MODE_NAMES)
        validation.unknown_keys(named, known)
        configs: dict[ModeKeys, SaveConfigMode | None] = {}
        for key, value in params.items():
            mode = _mode_named(key)
            if value is None or isinstance(value, SaveConfigMode):
                configs[mode] = value
            else:
                fields = validation.mapping(f"save_config of mode {mode.name}", value)
                configs[mode] = SaveConfigMode.from_dict(fields, default_values)
        return cls(configs)

    @classmethod
    def from_json(cls, json_str: str) -> SaveConfig:
        """Read what `to_json` wrote."""
        return cls.from_dict(parse_strictly("save_config", json_str))

    def to_json_dict(self) -> dict[str, Any]:
        """Return an entry for each mode name; None for a mode without a schedule."""
        return {
            mode.name: None if config is None else config.to_json_dict()
            for mode, config in self.mode_save_configs.items()
        }

    def to_json(self) -> str:
        """Return `to_json_dict` as JSON."""
        return json.dumps(self.to_json_dict())

    def get_save_config(self, mode: ModeKeys) -> SaveConfigMode:
        """Return the schedule of a mode; the default one if it has none."""
        return self.mode_save_configs[_check_mode(mode)] or SaveConfigMode()

    def set_save_config(self, mode: ModeKeys, save_config_mode: SaveConfigMode) -> None:
        """Replace the schedule of a mode."""
        _check_mode(mode)
        if not isinstance(save_config_mode, SaveConfigMode):
            raise SMDebugValueError(
                f"save_config of mode {mode.name} must be a SaveConfigMode, "
                f"got {validation.short_repr(save_config_mode)}"
            )
        self.mode_save_configs[mode] = save_config_mode

    def merged_with(self, default: SaveConfig) -> SaveConfig:
        """Return this configuration, with another one's schedule for modes that have none."""
        if all(self.mode_save_configs.values()):
            return self
        configs = {
            mode: config or default.get_save_config(mode)
            for mode, config in self.mode_save_configs.items()
        }
        return SaveConfig(configs)

    def merge_default_save_config(self, default_save_config: SaveConfig) -> None:
        """The same as `merged_with`, in place."""
        self.mode_save_configs = dict(self.merged_with(default_save_config).mode_save_configs)

    def should_save_step(self, mode: ModeKeys, step: int) -> bool:
        """Return whether a step is to be saved; `step` is counted in its mode."""
        return self.get_save_config(mode).should_save_step(step)

    def watches(self, mode: ModeKeys, tensor_name: str) -> bool:
        """Return whether `when_nan` of this mode names this tensor."""
        return self.get_save_config(mode).watches(tensor_name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SaveConfig):
            return NotImplemented
        return self.mode_save_configs == other.mode_save_configs

    # Equality is by contents, which set_save_config changes.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SaveConfig({self.mode_save_configs!r})"


def _check_mode(mode: object) -> ModeKeys:
    if not isinstance(mode, ModeKeys):
        raise SMDebugValueError(
            f"mode must be one of modes.{', modes.'.join(m.name for m in ModeKeys)}, "
            f"got {validation.short_repr(mode)}"
        )
    return mode


def _mode_named(key: object) -> ModeKeys:
    if isinstance(key, str) and key.upper() in ModeKeys.__members__:
        return ModeKeys[key.upper()]
    if isinstance(key, ModeKeys):
        return key
    raise SMDebugValueError(
        f"save_config must have modes ({', '.join(ModeKeys.__members__)}) or the fields of a "
        f"schedule ({', '.join(SAVE_FIELDS)}) as keys, got {validation.short_repr(key)}"
    )
