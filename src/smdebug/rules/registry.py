"""Finding rules: by name, in a user's file, or among what other packages bring."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdebug.config import validation
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError
from smdebug.rules.action.failure import without_secrets
from smdebug.rules.rule import Rule

if TYPE_CHECKING:
    from types import ModuleType

    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.trials.trial import Trial

ENTRY_POINT_GROUP = "smdebug.rules"
# Parameters of a function that stand for any number of them.
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

# Every built-in rule with the module it is in.
BUILTIN_RULES = {
    "AllZero": "all_zero",
    "CheckInputImages": "check_input_images",
    "ClassImbalance": "class_imbalance",
    "Confusion": "confusion",
    "CreateXgboostReport": "create_xgboost_report",
    "DeadRelu": "dead_relu",
    "ExplodingTensor": "exploding_tensor",
    "FeatureImportanceOverweight": "feature_importance_overweight",
    "FrozenParameter": "frozen_parameter",
    "GradientSpike": "gradient_spike",
    "LossNotDecreasing": "loss_not_decreasing",
    "LossSpike": "loss_spike",
    "NLPSequenceRatio": "nlp_sequence_ratio",
    "NonFinite": "non_finite",
    "Overfit": "overfit",
    "Overtraining": "overtraining",
    "PoorWeightInitialization": "poor_weight_initialization",
    "ReplicaDivergence": "replica_divergence",
    "SaturatedActivation": "saturated_activation",
    "SimilarAcrossRuns": "similar_across_runs",
    "StalledTrainingRule": "stalled_training",
    "TensorVariance": "tensor_variance",
    "TreeDepth": "tree_depth",
    "UnchangedTensor": "unchanged_tensor",
    "VanishingGradient": "vanishing_gradient",
    "WeightUpdateRatio": "weight_update_ratio",
}


def rule_names() -> list[str]:
    """The names of all rules that are installed, sorted.

    Example:
        >>> "VanishingGradient" in rule_names()
        True
    """
    return sorted({*BUILTIN_RULES, *(each.name for each in entry_points(group=ENTRY_POINT_GROUP))})


def rule_class(name: str) -> type[Rule]:
    """Finds a rule by its name, or as `path/to/file.py:Name` in a user's file.

    Raises:
        SMDebugValueError: there is none; the nearest names are offered.

    Example:
        >>> rule_class("VanishingGradient").__name__
        'VanishingGradient'
    """
    path, colon, in_file = name.rpartition(":")
    if colon and path.endswith(".py"):
        module = _module_at(path)
        return _checked(getattr(module, in_file, None), in_file, path, _rules_in(module))
    if name in BUILTIN_RULES:
        module = importlib.import_module(f"smdebug.rules.builtin.{BUILTIN_RULES[name]}")
        return _checked(getattr(module, name), name, module.__name__)
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == name:
            return _checked(entry.load(), name, entry.value)
    spelt = {known.lower(): known for known in rule_names()}
    near = [spelt[each] for each in difflib.get_close_matches(name.lower(), spelt, 3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(rule_names())}"
    raise SMDebugValueError(f"rule must be the name of a rule, got {without_secrets(name)}; {hint}")


class RuleSpec:
    """A rule and its parameters, before there is a trial.

    Args:
        given: a name, `"Name:parameter=value,parameter=value"`, `"file.py:Name"`, a class, a dict
            with the key `rule` and the parameters, or a tuple of name or class and parameters.

    Raises:
        SMDebugValueError: there is no such rule, or it has no such parameter.

    Example:
        >>> spec = RuleSpec("VanishingGradient:threshold=1e-6")
        >>> spec.kind.__name__, spec.parameters
        ('VanishingGradient', {'threshold': '1e-6'})
    """

    def __init__(self, given: Any) -> None:
        kind, self.parameters = _parsed(given)
        self.kind = (
            rule_class(kind)
            if isinstance(kind, str)
            else _checked(kind, without_secrets(kind), "rules")
        )
        self._check_parameters()

    def make(self, trial: Trial) -> Rule:
        """Makes the rule for a trial."""
        rule = self.kind(trial, **self.parameters)
        rule.rule_parameters = self._shown_parameters()
        return rule

    def needs(self) -> tuple[TensorRequirement, ...]:
        """What a hook has to save for the rule; () when the rule does not say.

        Raises:
            SMDebugValueError: a parameter makes no sense.
        """
        if self.kind.needs is Rule.needs:
            return ()
        kind: Any = self.kind
        found: tuple[TensorRequirement, ...] = kind(None, **self._shown_parameters()).needs()
        return found

    def _shown_parameters(self) -> dict[str, Any]:
        """The parameters without the actions, which may hold addresses and secrets."""
        return {key: value for key, value in self.parameters.items() if key != "action_str"}

    def _check_parameters(self) -> None:
        _, *known = inspect.signature(self.kind).parameters.values()
        named = [each for each in known if each.kind not in _ANY]
        for each in named:
            if each.default is each.empty and each.name not in self.parameters:
                raise SMDebugValueError(
                    f"rule {self.kind.__name__} must be told {each.name}, got "
                    f"{', '.join(map(str, self.parameters)) or 'no parameters'}"
                )
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known):
            return
        names = [each.name for each in named]
        for name in self.parameters:
            if name not in names:
                raise SMDebugValueError(
                    f"rule {self.kind.__name__} has the parameters {', '.join(names)}, got "
                    f"{validation.short_repr(name)}{_nearest(name, names)}"
                )


def _nearest(name: object, names: list[str]) -> str:
    near = difflib.get_close_matches(str(name), names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def make_rule(given: Any, trial: Trial) -> Rule:
    """Makes a rule for a trial of whatever `RuleSpec` takes; a rule stays what it is.

    Example:
        >>> make_rule({"rule": "VanishingGradient", "threshold": 1e-6}, trial)  # doctest: +SKIP
    """
    return given if isinstance(given, Rule) else RuleSpec(given).make(trial)


def _parsed(given: Any) -> tuple[str | type, dict[str, Any]]:
    if isinstance(given, Rule):
        raise SMDebugTypeError(
            f"rules must be names or classes here, got a {type(given).__name__} made already"
        )
    if isinstance(given, str):
        return _parsed_text(given.strip())
    if isinstance(given, type):
        return given, {}
    if isinstance(given, Mapping):
        fields = dict(given)
        kind = fields.pop("rule", None) or fields.pop("name", None)
        if not isinstance(kind, str | type):
            raise SMDebugValueError(
                f"a rule given as a dict must have a 'rule', got the keys {sorted(map(str, given))}"
            )
        return kind, fields
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping):
        return given[0], dict(given[1])
    raise SMDebugTypeError(
        "a rule must be given as a name, 'Name:parameter=value', a class or a dict, got "
        f"{without_secrets(given)} of type {type(given).__name__}"
    )


def _parsed_text(text: str) -> tuple[str, dict[str, Any]]:
    name, _, rest = text.partition(":")
    if name.endswith(".py"):
        inner, _, rest = rest.partition(":")
        name = f"{name}:{inner}"
    parameters: dict[str, Any] = {}
    # A value may hold commas itself: only one before `word=` ends it.
    for part in re.split(r",\s*(?=\w+\s*=)", rest) if rest else []:
        key, equals, value = part.partition("=")
        if not equals:
            raise SMDebugValueError(
                f"a rule is written 'Name:parameter=value,...', got {without_secrets(part)} for "
                f"{without_secrets(name)}"
            )
        parameters[key.strip()] = value.strip()
    return name, parameters


def _checked(kind: Any, name: str, where: str, there: list[str] | None = None) -> type[Rule]:
    if not isinstance(kind, type) or not issubclass(kind, Rule):
        hint = "" if there is None else f"; its rules: {', '.join(there) or 'none'}"
        raise SMDebugValueError(
            f"{where} must hold a subclass of smdebug.rules.Rule called {name}, got "
            f"{without_secrets(kind)}{hint}"
        )
    return kind


def _rules_in(module: ModuleType) -> list[str]:
    own = (each for each in vars(module).values() if isinstance(each, type))
    return [each.__name__ for each in own if issubclass(each, Rule) and each is not Rule]


def _module_at(path: str) -> ModuleType:
    file = Path(path).expanduser()
    if not file.is_file():
        raise SMDebugValueError(
            f"rule must be in a Python file, got {validation.short_repr(path)}: no file"
        )
    # Under a name of its own, so that it hides no module of the user's; another one for a file
    # that was changed, as they are in a notebook.
    state = file.stat()
    version = hash((str(file.resolve()), state.st_mtime_ns, state.st_size))
    name = f"smdebug_rules_{file.stem}_{abs(version)}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
