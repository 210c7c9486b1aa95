"""What every hook can be told, whatever the framework."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smdebug.addresses import checked_address
from smdebug.config import validation
from smdebug.config.collection import collection_name
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import DEFAULT_SAVE_CONFIG_INTERVAL, SaveConfig, SaveConfigMode
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError

FORMATS = ("v1", "v2")
DEFAULT_QUEUE_BYTES = 512 * 2**20


@dataclass(frozen=True, init=False)
class HookOptions:
    """The arguments of a hook, checked and in their final types.

    Args:
        out_dir: where the run goes: a directory or a URL; `~` is the home directory.
        export_tensorboard: write TensorBoard files too.
        tensorboard_dir: where to; `<out_dir>/tensorboard` when None.
        dry_run: decide everything, write no tensor.
        reduction_config: what to save of a tensor; the raw tensor when None.
        save_config: when to save: a SaveConfig, a SaveConfigMode, a dict, or None for the defaults.
        include_regex: regexes for the collection `default`: a string, an object with a `name`, or
            lists of them.
        include_collections: names of the collections to save, lists of them, however nested.
        save_all: save every tensor.
        include_workers: `"one"` or `"all"`.
        worker: the name of this worker; found out by the framework when None.
        format: `"v1"` or `"v2"`; None leaves it to `smdebug.config.environment.storage_format`.
        queue_bytes: how much may wait for the writer before training waits.
        flush_seconds: the longest time a finished step stays unpublished; None lets it grow with
            the age of the run.
        on_error: `"warn"`: stop saving, let training go on. `"raise"`: raise at the next step.
        rules: rules to evaluate while training runs: names, `"Name:parameter=value"`, dicts,
            classes, or a string of names with commas.
        on_finding: `"warn"`: what a rule finds is logged and kept in the run. `"stop"`: training
            stops, too.
        before_update: look at every gradient before the optimizer uses it, and stop when one is
            not finite.
        actions: what else to do when a rule finds something: JSON, a dict or a list of dicts.
        resume: go on behind the last step that the run in `out_dir` holds.

    Raises:
        SMDebugValueError: a value that makes no sense.
        SMDebugTypeError: an argument of the wrong type.

    Example:
        >>> options = HookOptions("/tmp/run", include_collections=["weights", ["bias"]])
        >>> options.include_collections
        ('weights', 'biases')
    """

    out_dir: str | None
    export_tensorboard: bool
    tensorboard_dir: str | None
    dry_run: bool
    reduction_config: ReductionConfig
    save_config: SaveConfig
    include_regex: tuple[str, ...]
    include_collections: tuple[str, ...]
    save_all: bool
    include_workers: str
    worker: str | None
    format: str | None
    queue_bytes: int
    flush_seconds: float | None
    on_error: str
    # Neither is shown: actions, which a rule may have too, hold addresses and secrets.
    rules: tuple[Any, ...] = field(repr=False)
    on_finding: str
    before_update: bool
    actions: Any = field(repr=False)
    resume: bool

    def __init__(
        self,
        out_dir: str | os.PathLike[str] | None = None,
        export_tensorboard: bool = False,
        tensorboard_dir: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | SaveConfigMode | Mapping[Any, Any] | None = None,
        include_regex: Any = None,
        include_collections: Any = None,
        save_all: bool = False,
        include_workers: str = "one",
        worker: str | None = None,
        format: str | None = None,
        queue_bytes: int = DEFAULT_QUEUE_BYTES,
        flush_seconds: float | None = None,
        on_error: str = "warn",
        rules: Any = None,
        on_finding: str = "warn",
        before_update: bool = False,
        actions: Any = None,
        resume: bool = False,
    ) -> None:
        values = {
            "out_dir": _location("out_dir", out_dir),
            "export_tensorboard": validation.boolean("export_tensorboard", export_tensorboard),
            "tensorboard_dir": _location("tensorboard_dir", tensorboard_dir),
            "dry_run": validation.boolean("dry_run", dry_run),
            "reduction_config": _reduction_config(reduction_config),
            "save_config": SaveConfig.parse(save_config),
            "include_regex": _regexes("include_regex", include_regex),
            "include_collections": _collection_names("include_collections", include_collections),
            "save_all": validation.boolean("save_all", save_all),
            "include_workers": validation.choice(
                "include_workers", include_workers, ("one", "all")
            ),
            "worker": None if worker is None else validation.text("worker", worker),
            "format": None if format is None else validation.choice("format", format, FORMATS),
            "queue_bytes": validation.whole_number("queue_bytes", queue_bytes, minimum=1),
            "flush_seconds": _optional_seconds("flush_seconds", flush_seconds),
            "on_error": validation.choice("on_error", on_error, ("warn", "raise")),
            "rules": rule_list(rules),
            "on_finding": validation.choice("on_finding", on_finding, ("warn", "stop")),
            "before_update": validation.boolean("before_update", before_update),
            "actions": actions,
            "resume": validation.boolean("resume", resume),
        }
        _require_rules(values)
        for name, value in {**values, "_scheduled": save_config is not None}.items():
            object.__setattr__(self, name, value)

    def saving_every(self, interval: int) -> HookOptions:
        """The same, with this interval where no schedule was given."""
        if self.scheduled or interval == DEFAULT_SAVE_CONFIG_INTERVAL:
            return self
        return self._with("save_config", SaveConfig(save_interval=interval))

    def with_tensorboard(self, directory: str | None) -> HookOptions:
        """The same, with TensorBoard files in this directory; unchanged when it is None."""
        return self if directory is None else self._with("tensorboard_dir", directory)

    def _with(self, name: str, value: object) -> HookOptions:
        options = copy.copy(self)
        object.__setattr__(options, name, value)
        return options

    @property
    def scheduled(self) -> bool:
        """Whether a schedule was given; where none was, rules have one of their own."""
        # Not a field: it is about an argument, not one itself.
        return bool(vars(self)["_scheduled"])

    @property
    def tensorboard_path(self) -> str | None:
        """Where TensorBoard files go; None when there are to be none."""
        if self.tensorboard_dir is not None:
            return self.tensorboard_dir
        if not self.export_tensorboard or self.out_dir is None:
            return None
        return f"{self.out_dir.rstrip('/')}/tensorboard"


def _location(key: str, value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    location = validation.text(key, value)
    try:
        checked_address(location)
    except SMDebugValueError as error:
        raise SMDebugValueError(f"{key}: {error}") from None
    if "://" in location or not location.startswith("~"):
        return location
    try:
        return str(Path(location).expanduser())
    except RuntimeError as error:
        raise SMDebugValueError(
            f"{key} must be a directory or a URL, got {validation.short_repr(location)}: {error}"
        ) from error


def _reduction_config(value: object) -> ReductionConfig:
    if value is None:
        return ReductionConfig(save_raw_tensor=True)
    if not isinstance(value, ReductionConfig):
        raise SMDebugTypeError(
            f"reduction_config must be a ReductionConfig, got {validation.short_repr(value)}"
        )
    return value


def _regexes(key: str, value: object) -> tuple[str, ...]:
    regexes = tuple(validation.names(key, value))
    for regex in regexes:
        validation.regex(key, regex)
    return regexes


def _collection_names(key: str, value: object) -> tuple[str, ...]:
    names = [collection_name(validation.text(key, name)) for name in validation.names(key, value)]
    return tuple(dict.fromkeys(names))


def rule_list(value: object) -> tuple[Any, ...]:
    """Returns rules as a tuple: one, several, or names in a string with commas.

    Example:
        >>> rule_list("NonFinite, TensorVariance:tensor_regex=a,b")
        ('NonFinite', 'TensorVariance:tensor_regex=a,b')
    """
    if value is None:
        return ()
    if isinstance(value, str):
        # A rule's name begins with a capital, or stands in a file; other commas are of parameters.
        parts = re.split(r",(?=\s*(?:[A-Z]\w*(?![\w=])|[^,:=]+\.py:))", value)
        return tuple(part.strip() for part in parts if part.strip())
    # A name with its parameters is one rule, not two.
    one = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping)
    if one or isinstance(value, type | Mapping) or not isinstance(value, Iterable):
        return (value,)
    return tuple(value)


def _require_rules(values: Mapping[str, Any]) -> None:
    """Refuses what would do nothing without rules."""
    if values["rules"]:
        return
    for key, idle in (("on_finding", "warn"), ("before_update", False), ("actions", None)):
        if values[key] != idle:
            raise SMDebugValueError(
                # Without the value: actions hold addresses and secrets.
                f"{key} must be given with rules, got no rules; name some, such as "
                'rules=["NonFinite"]'
            )


def _optional_seconds(key: str, value: object) -> float | None:
    return None if value is None else validation.seconds(key, value)
