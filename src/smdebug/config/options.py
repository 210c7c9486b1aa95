"""The arguments that every hook takes, checked."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from smdebug.addresses import checked_address
from smdebug.config import environment, validation
from smdebug.config.collection import collection_name
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import DEFAULT_SAVE_CONFIG_INTERVAL, SaveConfig
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Callable

    # Takes the name of an argument and its value; returns the value in its final type.
    Check = Callable[[str, Any], Any]

DEFAULT_SAGEMAKER_OUTDIR = "/opt/ml/output/tensors"
FORMATS = ("v1", "v2")
DEFAULT_QUEUE_BYTES = 512 * 2**20


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


def _reduction_config(key: str, value: object) -> ReductionConfig:
    if value is None:
        return ReductionConfig(save_raw_tensor=True)
    if not isinstance(value, ReductionConfig):
        raise SMDebugTypeError(
            f"{key} must be a ReductionConfig, got {validation.short_repr(value)}"
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
    """Return rules as a tuple: one rule, several, or a string of names with commas.

    Example:
        >>> rule_list("NonFinite, TensorVariance:tensor_regex=a,b")
        ('NonFinite', 'TensorVariance:tensor_regex=a,b')
    """
    if value is None:
        return ()
    if isinstance(value, str):
        # A rule's name begins with a capital letter or a file; other commas separate parameters.
        parts = re.split(r",(?=\s*(?:[A-Z]\w*(?![\w=])|[^,:=]+\.py:))", value)
        return tuple(part.strip() for part in parts if part.strip())
    # A pair of a name and parameters is one rule, not two.
    one = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping)
    if one or isinstance(value, type | Mapping) or not isinstance(value, Iterable):
        return (value,)
    return tuple(value)


def _one_of(*words: str) -> Check:
    return lambda key, value: validation.choice(key, value, words)


def _optional(check: Check) -> Check:
    return lambda key, value: None if value is None else check(key, value)


def _argument(check: Check, default: Any = None, *, show: bool = True) -> Any:
    return field(default=default, repr=show, metadata={"check": check})


@dataclass(frozen=True, init=False)
class HookOptions:
    """The arguments of a hook in their final types; `help(Hook)` describes each of them.

    Raises:
        SMDebugValueError: a value is invalid, or does not go with another one.
        SMDebugTypeError: an argument is unknown or of the wrong type.

    Example:
        >>> options = HookOptions("/tmp/run", include_collections=["weights", ["bias"]])
        >>> options.include_collections
        ('weights', 'biases')
    """

    out_dir: str | None = _argument(_location)
    export_tensorboard: bool = _argument(validation.boolean, False)
    tensorboard_dir: str | None = _argument(_location)
    dry_run: bool = _argument(validation.boolean, False)
    reduction_config: ReductionConfig = _argument(_reduction_config)  # noqa: RUF009
    save_config: SaveConfig = _argument(lambda _, value: SaveConfig.parse(value))  # noqa: RUF009
    include_regex: tuple[str, ...] = _argument(_regexes)
    include_collections: tuple[str, ...] = _argument(_collection_names)
    save_all: bool = _argument(validation.boolean, False)
    include_workers: str = _argument(_one_of("one", "all"), "one")
    worker: str | None = _argument(_optional(validation.text))
    format: str | None = _argument(_optional(_one_of(*FORMATS)))
    queue_bytes: int = _argument(
        lambda key, value: validation.whole_number(key, value, minimum=1), DEFAULT_QUEUE_BYTES
    )
    flush_seconds: float | None = _argument(_optional(validation.seconds))
    on_error: str = _argument(_one_of("warn", "raise"), "warn")
    # Rules and actions are not shown: they may hold addresses and secrets.
    rules: tuple[Any, ...] = _argument(lambda _, value: rule_list(value), show=False)
    on_finding: str = _argument(_one_of("warn", "stop"), "warn")
    before_update: bool = _argument(validation.boolean, False)
    actions: Any = _argument(lambda _, value: value, show=False)  # noqa: RUF009
    resume: bool = _argument(validation.boolean, False)
    overwrite: bool = _argument(validation.boolean, False)

    __signature__: ClassVar[inspect.Signature]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        signature = type(self).__signature__
        for name in kwargs:
            if name not in signature.parameters:
                near = validation.did_you_mean(name, signature.parameters)
                raise SMDebugTypeError(f"Unknown argument {name!r}.{near}")
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise SMDebugTypeError(f"Cannot make a hook: {error}") from None
        for each in dataclasses.fields(self):
            value = each.metadata["check"](each.name, given.get(each.name, each.default))
            object.__setattr__(self, each.name, value)
        # Not a field: it is about an argument, and no argument itself.
        object.__setattr__(self, "_scheduled", given.get("save_config") is not None)
        self._check_together()

    def _check_together(self) -> None:
        """Refuse arguments that contradict another one, or have no effect without it."""
        if self.resume and self.overwrite:
            raise SMDebugValueError(
                "resume and overwrite must not be given together: one continues the run in "
                "out_dir, the other one deletes it"
            )
        if self.rules:
            return
        for name in ("on_finding", "before_update", "actions"):
            if getattr(self, name) != getattr(type(self), name):
                # Without the value: actions hold addresses and secrets.
                raise SMDebugValueError(
                    f'{name} has no effect without rules. Name some, such as rules=["NonFinite"]'
                )

    def saving_every(self, interval: int) -> HookOptions:
        """Return options with this save interval, unless a `save_config` was given."""
        if self.scheduled or interval == DEFAULT_SAVE_CONFIG_INTERVAL:
            return self
        return self._with("save_config", SaveConfig(save_interval=interval))

    def with_tensorboard(self, directory: str | None) -> HookOptions:
        """Return options with this `tensorboard_dir`; the same ones when it is None."""
        return self if directory is None else self._with("tensorboard_dir", directory)

    def _with(self, name: str, value: object) -> HookOptions:
        options = copy.copy(self)
        object.__setattr__(options, name, value)
        return options

    @property
    def scheduled(self) -> bool:
        """Whether a `save_config` was given; rules have save intervals of their own otherwise."""
        return bool(vars(self)["_scheduled"])

    @property
    def run_dir(self) -> str | None:
        """The directory or URL of the run: `out_dir`, or the default one in a SageMaker job."""
        default = DEFAULT_SAGEMAKER_OUTDIR if environment.in_sagemaker() else None
        return default if self.out_dir is None else self.out_dir

    @property
    def tensorboard_path(self) -> str | None:
        """The directory or URL of TensorBoard files; None when none are written."""
        if self.tensorboard_dir is not None:
            return self.tensorboard_dir
        if not self.export_tensorboard or self.run_dir is None:
            return None
        return f"{self.run_dir.rstrip('/')}/tensorboard"


HookOptions.__signature__ = inspect.Signature(
    [
        inspect.Parameter(each.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=each.default)
        for each in dataclasses.fields(HookOptions)
    ]
)
