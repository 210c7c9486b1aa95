"""A JSON config that saves what rules require, for jobs configured outside their script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.config import validation
from smdebug.config.collection import NON_REDUCTION_COLLECTIONS
from smdebug.config.options import rule_list
from smdebug.rules.registry import RuleSpec

if TYPE_CHECKING:
    from smdebug.config.rule_requirements import TensorRequirement


def hook_configuration(rules: Any, save_interval: int | None = None) -> dict[str, Any]:
    """Return a JSON config, as a dict, for a hook that saves only what rules require.

    The rules can then run in another process, over the run that the job writes. Inputs and outputs
    of kinds of layers are selected by regex; a hook with the rules as its argument finds the layers
    by class.

    Args:
        rules: a rule, or a list of rules, as `RuleSpec` accepts them.
        save_interval: how often to save; the default of the rules when None.

    Example:
        >>> job = hook_configuration(["VanishingGradient"], save_interval=100)
        >>> job["CollectionConfigurations"]  # doctest: +NORMALIZE_WHITESPACE
        [{'CollectionName': 'gradients',
          'CollectionParameters': {'reductions': 'abs_mean,zeros', 'save_interval': '100'}}]
    """
    by_collection: dict[str, list[TensorRequirement]] = {}
    if save_interval is not None:
        save_interval = validation.whole_number("save_interval", save_interval, minimum=1)
    for rule in rule_list(rules):
        for need in RuleSpec(rule).needs():
            by_collection.setdefault(need.collection, []).append(need)
    entries = [_entry(name, needs, save_interval) for name, needs in by_collection.items()]
    return {"CollectionConfigurations": entries}


def _entry(name: str, needs: list[TensorRequirement], save_interval: int | None) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    regexes = dict.fromkeys(regex for need in needs for regex in need.include_regex)
    if regexes:
        # A list where a comma is part of a regex.
        plain = not any("," in regex for regex in regexes)
        parameters["include_regex"] = ",".join(regexes) if plain else list(regexes)
    reductions = dict.fromkeys(each for need in needs for each in need.reductions)
    if reductions and name not in NON_REDUCTION_COLLECTIONS:
        parameters["reductions"] = ",".join(reductions)
        if any(need.raw for need in needs):
            parameters["save_raw_tensor"] = "True"
    interval = save_interval or min(need.interval for need in needs)
    parameters["save_interval"] = str(interval)
    saves = [need.saves for need in needs]
    if None not in saves:
        parameters["end_step"] = str(max(each for each in saves if each is not None) * interval)
    return {"CollectionName": name, "CollectionParameters": parameters}
