"""The collections that a hook saves because its rules require them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig, SaveConfigMode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from smdebug.config.collection import Collection
    from smdebug.config.collection_manager import CollectionManager
    from smdebug.config.options import HookOptions
    from smdebug.config.rule_requirements import TensorRequirement

PREFIX = "rules_"


@dataclass(frozen=True)
class RuleCollection:
    """A collection that is saved for rules.

    Attributes:
        collection: the collection.
        named: the collection by whose name the rules find the tensors.
        needs: the requirements of the rules that it meets.
    """

    collection: Collection
    named: Collection
    needs: tuple[TensorRequirement, ...]

    def include(self, regex: str) -> None:
        """Add tensors that the rules require."""
        for collection in (self.collection, self.named):
            if regex not in collection.include_regex:
                collection.include(regex)


def add_rule_collections(
    manager: CollectionManager,
    needs: Iterable[TensorRequirement],
    options: HookOptions,
) -> list[RuleCollection]:
    """Make the collections of a hook meet the requirements of its rules.

    A collection that the user saves is not changed: rules get another one with the same tensors. A
    tensor in both is saved once, with the reductions of both.

    Args:
        manager: the collections of the hook.
        needs: the tensors that the rules require.
        options: the options of the hook.

    Returns:
        The collections to save.
    """
    groups: dict[tuple[str, int | None], list[TensorRequirement]] = {}
    for need in needs:
        groups.setdefault((need.collection, need.saves), []).append(need)
    found = []
    for (name, saves), group in groups.items():
        own = manager.get(name)
        own.include(_new_regexes(own, group))
        collection = own
        if options.save_all or name in options.include_collections or saves is not None:
            collection = manager.get(f"{PREFIX}{name}" + ("" if saves is None else "_at_first"))
            collection.include(_new_regexes(collection, group, own.include_regex))
        collection.reduction_config = _reduction_config(group)
        collection.save_config = _save_config(group, saves, options)
        found.append(RuleCollection(collection, own, tuple(group)))
    return found


def _new_regexes(
    collection: Collection, needs: list[TensorRequirement], more: Iterable[str] = ()
) -> list[str]:
    regexes = dict.fromkeys([*(each for need in needs for each in need.include_regex), *more])
    return [regex for regex in regexes if regex not in collection.include_regex]


def _reduction_config(needs: list[TensorRequirement]) -> ReductionConfig | None:
    names = dict.fromkeys(name for need in needs for name in need.reductions)
    raw = any(need.raw for need in needs) or not names
    return ReductionConfig.from_dict({"reductions": list(names), "save_raw_tensor": raw})


def _save_config(
    needs: list[TensorRequirement], saves: int | None, options: HookOptions
) -> SaveConfig | None:
    """Return the save schedule: the user's, if any, up to the last save that is required."""
    if not options.scheduled:
        every = min(need.interval for need in needs)
        return SaveConfig(save_interval=every, end_step=None if saves is None else saves * every)
    if saves is None:
        return None
    configs = {}
    for mode, config in options.save_config.mode_save_configs.items():
        if config is not None:
            end = config.start_step + saves * config.save_interval
            end = end if config.end_step is None else min(end, config.end_step)
            configs[mode] = SaveConfigMode(config.save_interval, config.start_step, end)
    return SaveConfig(configs)
