"""The job file that feeds rules: for a job that is configured from outside of its script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smdebug.config import validation
from smdebug.config.collection import NON_REDUCTION_COLLECTIONS
from smdebug.config.options import rule_list
from smdebug.rules.registry import RuleSpec

if TYPE_CHECKING:
    from smdebug.config.rule_requirements import TensorRequirement


def hook_configuration(rules: Any, save_interval: int | None = None) -> dict[str, Any]:
    """Makes the contents of a job file whose hook saves what rules need, and no more.

    The rules themselves can then run anywhere, over the run that the job writes. Where a rule
    needs the inputs or outputs of kinds of layers, the file names them by regex; a hook that is
    told the rules themselves finds them by their class.

    Args:
        rules: a list of what `RuleSpec` takes; one need not stand in a list.
        save_interval: how often to save; as the rules would have it when None.

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
