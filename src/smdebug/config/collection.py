"""Collections: named groups of tensors with their own save schedule and reductions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from smdebug.config import validation
from smdebug.config.lenient_json import parse_strictly
from smdebug.config.observed import ObservedList, ObservedSet
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError

if TYPE_CHECKING:
    from smdebug.config.untrusted_regex import UntrustedRegex


class CollectionKeys:
    """The names of the built-in collections."""

    DEFAULT = "default"
    ALL = "all"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    LOSSES = "losses"
    BIASES = "biases"
    LAYERS = "layers"
    SM_METRICS = "sm_metrics"
    OPTIMIZER_VARIABLES = "optimizer_variables"
    TENSORFLOW_SUMMARIES = "tensorflow_summaries"
    METRICS = "metrics"
    SCALARS = "scalars"
    SEARCHABLE_SCALARS = "searchable_scalars"
    HYPERPARAMETERS = "hyperparameters"
    PREDICTIONS = "predictions"
    LABELS = "labels"
    FEATURE_IMPORTANCE = "feature_importance"
    AVERAGE_SHAP = "average_shap"
    FULL_SHAP = "full_shap"
    TREES = "trees"


_K = CollectionKeys

SM_METRIC_COLLECTIONS = {_K.LOSSES, _K.METRICS, _K.SM_METRICS, _K.SEARCHABLE_SCALARS}
SCALAR_COLLECTIONS = {
    *SM_METRIC_COLLECTIONS,
    _K.SCALARS,
    _K.FEATURE_IMPORTANCE,
    _K.AVERAGE_SHAP,
}
SUMMARIES_COLLECTIONS = {_K.TENSORFLOW_SUMMARIES}
# Always saved raw: a reduction or a histogram of one number is useless.
NON_REDUCTION_COLLECTIONS = SCALAR_COLLECTIONS | SUMMARIES_COLLECTIONS
NON_HISTOGRAM_COLLECTIONS = SCALAR_COLLECTIONS | SUMMARIES_COLLECTIONS

# The collections that each framework registers. They may have neither regexes nor names.
DEFAULT_PYTORCH_COLLECTIONS = {
    *(_K.ALL, _K.DEFAULT, _K.WEIGHTS, _K.BIASES, _K.GRADIENTS, _K.LOSSES, _K.SCALARS),
}
DEFAULT_MXNET_COLLECTIONS = set(DEFAULT_PYTORCH_COLLECTIONS)
DEFAULT_TF_COLLECTIONS = {
    *(_K.ALL, _K.DEFAULT, _K.WEIGHTS, _K.BIASES, _K.GRADIENTS, _K.LOSSES, _K.METRICS),
    *(_K.INPUTS, _K.OUTPUTS, _K.LAYERS, _K.OPTIMIZER_VARIABLES),
    *(_K.SM_METRICS, _K.SEARCHABLE_SCALARS, _K.SCALARS),
}
DEFAULT_XGBOOST_COLLECTIONS = {
    *(_K.ALL, _K.DEFAULT, _K.HYPERPARAMETERS, _K.METRICS, _K.LOSSES, _K.PREDICTIONS, _K.LABELS),
    *(_K.FEATURE_IMPORTANCE, _K.AVERAGE_SHAP, _K.FULL_SHAP, _K.TREES),
}


class DefinedName(str):
    """The name of a collection that a JSON config defines: never a misspelled one."""

    __slots__ = ()


_OLD_NAMES = {"bias": _K.BIASES}


def collection_name(name: str) -> str:
    """Return the current name of a collection: `biases` used to be `bias`."""
    return _OLD_NAMES.get(name, name)


class Collection:
    """A named group of tensors with its own save schedule and reductions.

    A tensor belongs to it if its name is in `tensor_names` or matches `include_regex`, and does not
    match `exclude_regex`. (A third of the methods are the names that early releases had.)

    Args:
        name: the name of the collection.
        include_regex: regexes (`re.search`) of tensor names: a string or lists of strings.
        tensor_names: exact tensor names.
        reduction_config: what to save of the tensors; the hook's when None.
        save_config: when to save them; the hook's when None.
        save_histogram: whether TensorBoard gets histograms of them.
        exclude_regex: regexes of tensor names that do not belong to it; they win.

    Raises:
        SMDebugValueError: a regex that cannot be compiled.
        SMDebugTypeError: an argument of the wrong type.

    Example:
        >>> relu = Collection("relu", include_regex="relu_output", exclude_regex="^gradient")
        >>> relu.matches("net.relu_output_0"), relu.matches("gradient/relu_output_0")
        (True, False)
    """

    _observer: Callable[[], None] | None = None

    def __init__(
        self,
        name: str,
        include_regex: Any = None,
        tensor_names: list[str] | set[str] | None = None,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | Mapping[Any, Any] | None = None,
        save_histogram: bool = True,
        exclude_regex: Any = None,
    ) -> None:
        self.name = collection_name(validation.text("collection name", name))
        self._patterns: dict[str, re.Pattern[str] | UntrustedRegex] = {}
        self.include_regex: list[str] = []
        self.exclude_regex: list[str] = []
        self.include(include_regex)
        self.exclude(exclude_regex)
        self.tensor_names = tensor_names
        self.reduction_config = reduction_config
        self.save_config = save_config
        self.save_histogram = validation.boolean(self._key("save_histogram"), save_histogram)

    def observe(self, observer: Callable[[], None] | None) -> None:
        """Have a function called after every change; a copy of the collection is not observed."""
        vars(self)["_observer"] = observer

    def _changed(self) -> None:
        if self._observer is not None:
            self._observer()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("include_regex", "exclude_regex"):
            value = ObservedList(value, self._changed)
        elif name == "_tensor_names":
            value = ObservedSet(value, self._changed)
        super().__setattr__(name, value)
        self._changed()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_observer"}

    def include(self, include_regex: Any) -> None:
        """Add regexes: a string, an object with a `name`, or lists of them."""
        self.include_regex.extend(self._checked("include_regex", include_regex))

    def exclude(self, exclude_regex: Any) -> None:
        """Add regexes of tensors to exclude: a string or lists of strings."""
        self.exclude_regex.extend(self._checked("exclude_regex", exclude_regex))

    def add(self, tensor_names: Any) -> None:
        """Add tensor names: a string, an object with a `name`, or lists of them."""
        self._tensor_names.update(validation.names(self._key("tensor name"), tensor_names))

    def matches(self, tensor_name: str) -> bool:
        """Return whether a tensor of this name belongs to the collection."""
        if self._found("exclude_regex", tensor_name):
            return False
        return tensor_name in self._tensor_names or self._found("include_regex", tensor_name)

    def filter(self, tensor_names: Iterable[str]) -> list[str]:
        """Return the names that belong to the collection, in their order.

        The same as `matches` for each of them, and faster for the collections of a run.
        """
        names = list(tensor_names)
        excluded = self._found_in("exclude_regex", names)
        names = [name for name in names if name not in excluded] if excluded else names
        rest = [name for name in names if name not in self._tensor_names]
        included = self._found_in("include_regex", rest)
        return [name for name in names if name in self._tensor_names or name in included]

    def add_untrusted(self, argument: str, regexes: dict[str, UntrustedRegex]) -> None:
        """Add regexes of unknown origin, which `re` must not search with.

        Args:
            argument: "include_regex" or "exclude_regex".
            regexes: by their patterns.
        """
        getattr(self, argument).extend(regexes)
        self._patterns.update(regexes)

    def is_empty(self) -> bool:
        """Return whether the collection has neither regexes nor tensor names."""
        return not self.include_regex and not self._tensor_names

    @property
    def tensor_names(self) -> set[str]:
        """The exact names of tensors that belong to the collection."""
        return self._tensor_names

    @tensor_names.setter
    def tensor_names(self, names: list[str] | set[str] | None) -> None:
        if names is not None and not isinstance(names, list | set):
            raise SMDebugTypeError(
                f"{self._key('tensor_names')} must be a list or a set of strings, "
                f"got {validation.short_repr(names)}"
            )
        self._tensor_names = set(validation.names(self._key("tensor_names"), names))

    def add_tensor_name(self, tname: str) -> None:
        """Add one tensor name."""
        self.add(tname)

    def remove_tensor_name(self, tname: str) -> None:
        """Remove a tensor name if it is there."""
        self._tensor_names.discard(tname)

    def has_tensor_name(self, tname: str) -> bool:
        """Return whether the exact name was added; `matches` uses the regexes as well."""
        return tname in self._tensor_names

    @property
    def save_config(self) -> SaveConfig | None:
        """When to save: a SaveConfig or a dict of modes; the hook's when None."""
        return self._save_config

    @save_config.setter
    def save_config(self, save_config: SaveConfig | Mapping[Any, Any] | None) -> None:
        # A SaveConfigMode alone has no mode.
        if isinstance(save_config, SaveConfigMode) or not isinstance(
            save_config, SaveConfig | Mapping | None
        ):
            raise SMDebugTypeError(
                f"{self._key('save_config')} must be a SaveConfig or a dict of modes to "
                f"SaveConfigMode, got {validation.short_repr(save_config)}"
            )
        self._save_config = None if save_config is None else SaveConfig.parse(save_config)

    @property
    def reduction_config(self) -> ReductionConfig | None:
        """What to save of each tensor; the hook's when None."""
        return self._reduction_config

    @reduction_config.setter
    def reduction_config(self, reduction_config: ReductionConfig | None) -> None:
        if not isinstance(reduction_config, ReductionConfig | None):
            raise SMDebugTypeError(
                f"{self._key('reduction_config')} must be a ReductionConfig, "
                f"got {validation.short_repr(reduction_config)}"
            )
        self._reduction_config = reduction_config

    def fill_from(self, save_config: SaveConfig, reduction_config: ReductionConfig) -> None:
        """Set the configurations that are None to those of the hook.

        Configurations are not merged field by field: only one that is None, or a mode of the save
        schedule that is None, is the hook's. Collections of scalars are always saved raw.
        """
        own = self._save_config
        self._save_config = save_config if own is None else own.merged_with(save_config)
        if self.name in NON_REDUCTION_COLLECTIONS:
            self._reduction_config = ReductionConfig(save_raw_tensor=True)
        elif self._reduction_config is None:
            self._reduction_config = reduction_config
        if self.name in NON_HISTOGRAM_COLLECTIONS:
            self.save_histogram = False

    def overlay(self, other: Collection) -> None:
        """Add the regexes and names of another collection; its configurations win."""
        self.include([regex for regex in other.include_regex if regex not in self.include_regex])
        self.exclude([regex for regex in other.exclude_regex if regex not in self.exclude_regex])
        self._tensor_names |= other.tensor_names
        self._save_config = other.save_config or self._save_config
        self._reduction_config = other.reduction_config or self._reduction_config
        self.save_histogram = self.save_histogram and other.save_histogram

    def to_json_dict(self) -> dict[str, Any]:
        """Return the entry of a collections file; `exclude_regex` only if there is one."""
        save, reduction = self._save_config, self._reduction_config
        fields: dict[str, Any] = {
            "name": self.name,
            "include_regex": list(self.include_regex),
            "tensor_names": sorted(self._tensor_names),
            "reduction_config": None if reduction is None else reduction.to_json_dict(),
            "save_config": None if save is None else save.to_json_dict(),
            "save_histogram": self.save_histogram,
        }
        if self.exclude_regex:
            fields["exclude_regex"] = list(self.exclude_regex)
        return fields

    def to_json(self) -> str:
        """Return `to_json_dict` as JSON."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Mapping[str, Any]) -> Collection:
        """Make a collection from an entry of a collections file; unknown keys are ignored."""
        params = validation.mapping("collection", params)
        if "name" not in params:
            raise SMDebugValueError(
                f"collection must have a name, got {validation.short_repr(params)}"
            )
        collection = cls(
            params["name"],
            include_regex=params.get("include_regex"),
            tensor_names=params.get("tensor_names"),
            reduction_config=ReductionConfig.from_dict(params.get("reduction_config")),
            save_config=params.get("save_config"),
            save_histogram=params.get("save_histogram", True),
            exclude_regex=params.get("exclude_regex"),
        )
        # A run may have both `bias` and `biases`.
        collection.name = params["name"]
        return collection

    @classmethod
    def from_json(cls, json_str: str) -> Collection:
        """Read what `to_json` wrote."""
        return cls.from_dict(parse_strictly("collection", json_str))

    # The method names of early releases.

    def get_include_regex(self) -> list[str]:
        """Return `include_regex`."""
        return self.include_regex

    def get_tensor_names(self) -> set[str]:
        """Return `tensor_names`."""
        return self.tensor_names

    def get_save_config(self) -> SaveConfig | None:
        """Return `save_config`."""
        return self.save_config

    def set_save_config(self, save_config: SaveConfig | Mapping[Any, Any] | None) -> None:
        """Set `save_config`."""
        self.save_config = save_config

    def get_reduction_config(self) -> ReductionConfig | None:
        """Return `reduction_config`."""
        return self.reduction_config

    def set_reduction_config(self, reduction_config: ReductionConfig | None) -> None:
        """Set `reduction_config`."""
        self.reduction_config = reduction_config

    def _key(self, argument: str) -> str:
        return f"collection {self.name!r}: {argument}"

    def _checked(self, argument: str, value: Any) -> list[str]:
        regexes = validation.names(self._key(argument), value)
        for regex in regexes:
            self._pattern(argument, regex)
        return regexes

    def _pattern(self, argument: str, regex: str) -> re.Pattern[str] | UntrustedRegex:
        # Compiled when needed: scripts append to include_regex, which is a plain list.
        if regex not in self._patterns:
            self._patterns[regex] = validation.regex(self._key(argument), regex)
        return self._patterns[regex]

    def _found(self, argument: str, tensor_name: str) -> bool:
        regexes: list[str] = getattr(self, argument)
        return any(self._pattern(argument, regex).search(tensor_name) for regex in regexes)

    def _found_in(self, argument: str, names: list[str]) -> set[str]:
        found: set[str] = set()
        for regex in getattr(self, argument):
            pattern = self._pattern(argument, regex)
            rest = [name for name in names if name not in found] if found else names
            if isinstance(pattern, re.Pattern):
                found.update(filter(pattern.search, rest))
            else:
                found.update(pattern.matching(rest))
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Collection):
            return NotImplemented
        return self.to_json_dict() == other.to_json_dict()

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.to_json()}>"
