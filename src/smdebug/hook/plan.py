"""Which tensors are saved at a step, and what of them.

Regexes are matched once per tensor name and kind of step; from then on a decision is one look-up in
a dictionary. A kind of step is what the schedules make of it: the mode, the collections that save,
and those that would save if a watched tensor turned out not to be finite.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from smdebug.config.collection import NON_REDUCTION_COLLECTIONS
from smdebug.config.schedule import by_schedule
from smdebug.mode_keys import ModeKeys

if TYPE_CHECKING:
    from collections.abc import Collection as Sized
    from collections.abc import Iterable, Mapping

    from smdebug.config.collection import Collection
    from smdebug.config.options import HookOptions
    from smdebug.config.save_config import SaveConfigMode


@dataclass(frozen=True)
class SaveRequest:
    """What is to be saved of a tensor.

    Attributes:
        raw: the tensor itself.
        reductions: numbers computed from it.
        collections: the names of those that asked for it.
        histogram: the first of them that wants a histogram, where TensorBoard files are written.
    """

    raw: bool
    reductions: tuple[str, ...]
    collections: tuple[str, ...]
    histogram: str | None = None


class SavePlan:
    """The collections of a hook, resolved: what each leaves open is filled in from the hook.

    Args:
        collections: all collections of the hook; they are copied.
        included: the names of those that are saved.
        options: the hook's options.
        before: the plan that this one replaces.

    Attributes:
        collections: the resolved collections, saved or not.
        seen: the names of tensors that were saved, by collection.
        changed: whether they were changed since this was last set to False.
    """

    def __init__(
        self,
        collections: Mapping[str, Collection],
        included: Sized[str],
        options: HookOptions,
        before: SavePlan | None = None,
    ) -> None:
        self.seen: dict[str, set[str]] = {} if before is None else before.seen
        self.collections: dict[str, Collection] = {}
        for collection in collections.values():
            self.add(collection, options)
        self._schedules: dict[ModeKeys, list[tuple[SaveConfigMode, list[Collection]]]] = {}
        self._included = [each for name, each in self.collections.items() if name in included]
        self._kinds: dict[object, StepPlan | None] = {}
        self._ever: dict[tuple[ModeKeys, str], bool] = {}
        self._histograms = options.tensorboard_path is not None

    def add(self, collection: Collection, options: HookOptions) -> None:
        """Resolves one more collection, which is not among those that are saved by themselves."""
        resolved = copy.copy(collection)
        # Not shared: a user may go on to change them.
        resolved.tensor_names = set(collection.tensor_names)
        resolved.fill_from(options.save_config, options.reduction_config)
        self.collections[collection.name] = resolved
        self.changed = True

    def at(self, mode: ModeKeys, mode_step: int) -> StepPlan | None:
        """The plan of a step; None when nothing is to be done at it."""
        schedules = self._schedules_of(mode)
        key = (mode, *[config.should_save_step(mode_step) for config, _ in schedules])
        if key not in self._kinds:
            saving = [each for (_, group), now in zip(schedules, key[1:], strict=True)
                      if now for each in group]  # fmt: skip
            armed = [config for (config, _), now in zip(schedules, key[1:], strict=True)
                     if not now and config.when_nan]  # fmt: skip
            self._kinds[key] = StepPlan(self, mode, saving, armed) if saving or armed else None
        return self._kinds[key]

    def ever(self, mode: ModeKeys, name: str) -> bool:
        """Whether a tensor is saved or watched at any step of a mode."""
        key = mode, name
        if key not in self._ever:
            self._ever[key] = any(
                config.watches(name) or any(each.matches(name) for each in group)
                for config, group in self._schedules_of(mode)
            )
        return self._ever[key]

    def forget_ever(self, name: str) -> None:
        """Drops what `ever` has found out about a tensor, which was put into a collection since."""
        for mode in ModeKeys:
            self._ever.pop((mode, name), None)

    def triggered(self, plan: StepPlan, config: SaveConfigMode) -> StepPlan:
        """The plan of a step at which a tensor that `config` watches is not finite."""
        key = (plan, config)
        if key not in self._kinds:
            armed = [other for other in plan.armed if other != config]
            saving = [*plan.saving, *self.group_of(plan.mode, config)]
            self._kinds[key] = StepPlan(self, plan.mode, saving, armed)
        found = self._kinds[key]
        assert found is not None
        return found

    def see(self, collection: str, tensor: str) -> None:
        """Remembers that a tensor of a collection is saved."""
        names = self.seen.setdefault(collection, set())
        if tensor not in names:
            names.add(tensor)
            self.changed = True

    def forget(self) -> None:
        """Drops what adapters remember in the plans of steps; they find it out again."""
        for plan in self._kinds.values():
            if plan is not None:
                plan.memory.clear()

    def group_of(self, mode: ModeKeys, config: SaveConfigMode) -> list[Collection]:
        """The included collections under one schedule."""
        return dict(self._schedules[mode])[config]

    def collections_at(self, names: Iterable[str], mode: ModeKeys, mode_step: int) -> list[str]:
        """Those of the named collections whose schedule has this step, included or not."""
        found = []
        for name in names:
            config = self.collections[name].save_config
            if config is not None and config.should_save_step(mode, mode_step):
                found.append(name)
        return found

    def want_of(self, names: Iterable[str]) -> SaveRequest | None:
        """What is saved of a tensor that belongs to these collections."""
        return self.want_in([self.collections[name] for name in names])

    def want_in(self, collections: list[Collection]) -> SaveRequest | None:
        """What is saved of a tensor that is in these collections; None if it is nothing."""
        want = _want(collections)
        if want is None or not self._histograms:
            return want
        names = [each.name for each in collections if each.save_histogram]
        return replace(want, histogram=names[0] if names else None)

    def _schedules_of(self, mode: ModeKeys) -> list[tuple[SaveConfigMode, list[Collection]]]:
        schedules = self._schedules.get(mode)
        if schedules is None:
            schedules = self._schedules[mode] = by_schedule(self._included, mode)
        return schedules


class StepPlan:
    """The plan of one kind of step.

    Attributes:
        mode: the mode of the steps.
        saving: the collections that are saved.
        armed: schedules that save nothing at the step unless a tensor they watch is not finite.
        memory: for the adapter: what it found out about this kind of step.
    """

    def __init__(
        self,
        plan: SavePlan,
        mode: ModeKeys,
        saving: list[Collection],
        armed: list[SaveConfigMode],
    ) -> None:
        self._plan = plan
        self.mode = mode
        self.saving = saving
        self.armed = armed
        self.memory: dict[object, object] = {}
        self._wants: dict[str, SaveRequest | None] = {}
        self._watchers: dict[str, SaveConfigMode | None] = {}
        self._held: dict[str, bool] = {}
        self._words: set[str] | None = None

    def want(self, name: str) -> SaveRequest | None:
        """What to save of a tensor; None when it is of no interest."""
        try:
            return self._wants[name]
        except KeyError:
            pass
        matching = [collection for collection in self.saving if collection.matches(name)]
        for collection in matching:
            self._plan.see(collection.name, name)
        want = self._wants[name] = self._plan.want_in(matching)
        return want

    def saves(self, name: str, besides: Sized[str] = ()) -> bool:
        """Whether something is saved of the tensor; asking does not count as seeing it.

        Args:
            name: the tensor's name.
            besides: collections that do not count.
        """
        return any(each.matches(name) for each in self.saving if each.name not in besides)

    def interesting(self, name: str, besides: Sized[str] = ()) -> bool:
        """Whether the tensor is saved, watched, or saved if a watched one is not finite.

        Args:
            name: the tensor's name.
            besides: collections that do not count.
        """
        if self.saves(name, besides):
            return True
        return bool(self.armed) and (self.may_want(name) or self.watcher(name) is not None)

    def words(self, known: Sized[str] = ()) -> set[str]:
        """The words in everything that was asked for, and their last parts.

        Args:
            known: regexes to leave out.

        Example:
            A regex `output_logits$` has the words `output_logits` and `logits`.
        """
        if self._words is None:
            groups = [self._plan.group_of(self.mode, config) for config in self.armed]
            collections = [*self.saving, *(each for group in groups for each in group)]
            texts = [text for each in collections
                     for text in (*each.include_regex, *each.tensor_names)]  # fmt: skip
            texts += [text for config in self.armed for text in config.when_nan]
            asked = [text for text in texts if text not in known]
            found = {word for text in asked for word in re.findall(r"\w+", text)}
            parts = {word[place + 1 :] for word in found
                     for place, letter in enumerate(word) if letter == "_"}  # fmt: skip
            self._words = (found | parts) - {""}
        return self._words

    def may_want(self, name: str) -> bool:
        """Whether the tensor would be saved if something turned out not to be finite."""
        if name not in self._held:
            groups = [self._plan.group_of(self.mode, config) for config in self.armed]
            self._held[name] = any(each.matches(name) for group in groups for each in group)
        return self._held[name]

    def watcher(self, name: str) -> SaveConfigMode | None:
        """The armed schedule that watches this tensor."""
        if name not in self._watchers:
            self._watchers[name] = next(
                (config for config in self.armed if config.watches(name)), None
            )
        return self._watchers[name]


def _want(collections: list[Collection]) -> SaveRequest | None:
    raw, reductions = False, {}
    for collection in collections:
        config = collection.reduction_config
        assert config is not None
        # A shape comes with whatever else is saved; asked for alone it needs a row of its own.
        raw = raw or config.save_raw_tensor
        if collection.name not in NON_REDUCTION_COLLECTIONS:
            reductions.update(dict.fromkeys(config.names))
    shape = any(each.reduction_config and each.reduction_config.save_shape for each in collections)
    if not (raw or reductions or shape):
        return None
    return SaveRequest(raw, tuple(reductions), tuple(collection.name for collection in collections))
