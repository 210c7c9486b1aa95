"""Which tensors are saved at a step, and what of them.

Regexes are matched once per tensor name and kind of step; from then on a decision is one look-up in
a dictionary. A kind of step is what the save schedules make of it: the mode, the collections that
save, and those that would save if a tensor turned out to be non-finite (`when_nan`).
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from smdebug.config.collection import NON_REDUCTION_COLLECTIONS
from smdebug.config.schedule import by_schedule
from smdebug.mode_keys import ModeKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Collection as Sized

    from smdebug.config.collection import Collection
    from smdebug.config.options import HookOptions
    from smdebug.config.save_config import SaveConfigMode

V = TypeVar("V")


@dataclass(frozen=True)
class SaveRequest:
    """What to save of a tensor.

    Attributes:
        raw: the tensor itself.
        reductions: the reductions to compute.
        collections: the names of the collections that request it.
        histogram: the first of them that wants a histogram, where TensorBoard files are written.
    """

    raw: bool
    reductions: tuple[str, ...]
    collections: tuple[str, ...]
    histogram: str | None = None


class SavePlan:
    """The collections of a hook with their configurations filled in from the hook's.

    Args:
        collections: all collections of the hook; they are copied.
        included: the names of those that are saved.
        options: the hook's options.
        previous: the plan that this one replaces.

    Attributes:
        collections: the copies, saved or not.
        seen: the names of tensors that were saved, by collection.
        changed: whether they changed since this was last set to False.
    """

    def __init__(
        self,
        collections: Mapping[str, Collection],
        included: Sized[str],
        options: HookOptions,
        previous: SavePlan | None = None,
    ) -> None:
        self.seen: dict[str, set[str]] = {} if previous is None else previous.seen
        self.collections: dict[str, Collection] = {}
        for collection in collections.values():
            self.add(collection, options)
        self._schedules: dict[ModeKeys, list[tuple[SaveConfigMode, list[Collection]]]] = {}
        self._included = [each for name, each in self.collections.items() if name in included]
        self._kinds: dict[object, StepPlan | None] = {}
        self._ever: dict[tuple[ModeKeys, str], bool] = {}
        self._histograms = options.tensorboard_path is not None

    def add(self, collection: Collection, options: HookOptions) -> None:
        """Add a collection, which is not among those that are saved by their regexes."""
        resolved = copy.copy(collection)
        # Not shared: the user may change them later.
        resolved.include_regex = list(collection.include_regex)
        resolved.exclude_regex = list(collection.exclude_regex)
        resolved.tensor_names = set(collection.tensor_names)
        resolved.fill_from(options.save_config, options.reduction_config)
        self.collections[collection.name] = resolved
        self.changed = True

    def at(self, mode: ModeKeys, mode_step: int) -> StepPlan | None:
        """Return the plan of a step; None when there is nothing to do at it."""
        schedules = self._schedules_of(mode)
        key = (mode, *[config.should_save_step(mode_step) for config, _ in schedules])
        if key not in self._kinds:
            saving = [each for (_, group), now in zip(schedules, key[1:], strict=True)
                      if now for each in group]  # fmt: skip
            armed = [config for (config, _), now in zip(schedules, key[1:], strict=True)
                     if not now and config.when_nan]  # fmt: skip
            self._kinds[key] = StepPlan(self, mode, saving, armed) if saving or armed else None
        return self._kinds[key]

    def next_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        """Return the first step of a mode after `mode_step` that has a plan; None without one."""
        found: list[int] = []
        for config, _ in self._schedules_of(mode):
            step = mode_step + 1 if config.when_nan else config.next_save_step(mode_step)
            if step is not None:
                found.append(step)
        return min(found, default=None)

    def ever(self, mode: ModeKeys, name: str) -> bool:
        """Return whether a tensor is saved or observed at any step of a mode."""
        key = mode, name
        if key not in self._ever:
            self._ever[key] = any(
                config.watches(name) or any(each.matches(name) for each in group)
                for config, group in self._schedules_of(mode)
            )
        return self._ever[key]

    def forget_ever(self, name: str) -> None:
        """Drop the cached answers of `ever` about a tensor that joined or left a collection."""
        for mode in ModeKeys:
            self._ever.pop((mode, name), None)

    def triggered(self, plan: StepPlan, config: SaveConfigMode) -> StepPlan:
        """Return the plan of a step at which a tensor that `config` observes is non-finite."""
        key = (plan, config)
        if key not in self._kinds:
            armed = [other for other in plan.armed if other != config]
            saving = [*plan.saving, *self.group_of(plan.mode, config)]
            self._kinds[key] = StepPlan(self, plan.mode, saving, armed)
        found = self._kinds[key]
        assert found is not None
        return found

    def see(self, collection: str, tensor: str) -> None:
        """Record that a tensor of a collection is saved."""
        names = self.seen.setdefault(collection, set())
        if tensor not in names:
            names.add(tensor)
            self.changed = True

    def group_of(self, mode: ModeKeys, config: SaveConfigMode) -> list[Collection]:
        """Return the included collections with one save schedule."""
        return dict(self._schedules[mode])[config]

    def collections_at(self, names: Iterable[str], mode: ModeKeys, mode_step: int) -> list[str]:
        """Return those of the named collections that save at this step, included or not."""
        found = []
        for name in names:
            config = self.collections[name].save_config
            if config is not None and config.should_save_step(mode, mode_step):
                found.append(name)
        return found

    def request_for(self, collections: list[Collection]) -> SaveRequest | None:
        """Return what to save of a tensor that is in these collections; None for nothing."""
        raw, shape, reductions = False, False, {}
        for collection in collections:
            config = collection.reduction_config
            assert config is not None
            raw, shape = raw or config.save_raw_tensor, shape or config.save_shape
            if collection.name not in NON_REDUCTION_COLLECTIONS:
                reductions.update(dict.fromkeys(config.names))
        # A shape comes with anything else that is saved; requested alone it needs its own row.
        if not (raw or reductions or shape):
            return None
        names = tuple(collection.name for collection in collections)
        request = SaveRequest(raw, tuple(reductions), names)
        if self._histograms:
            histograms = [each.name for each in collections if each.save_histogram]
            request = replace(request, histogram=histograms[0] if histograms else None)
        return request

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
        armed: schedules that save nothing at the step unless a tensor they observe is non-finite.
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
        self._requests: dict[str, SaveRequest | None] = {}
        self._triggers: dict[str, SaveConfigMode | None] = {}
        self._held: dict[str, bool] = {}
        self._words: set[str] | None = None

    def request(self, name: str) -> SaveRequest | None:
        """Return what to save of a tensor; None when it is not saved."""
        try:
            return self._requests[name]
        except KeyError:
            pass
        matching = [collection for collection in self.saving if collection.matches(name)]
        for collection in matching:
            self._plan.see(collection.name, name)
        request = self._requests[name] = self._plan.request_for(matching)
        return request

    def saves(self, name: str, ignored: Sized[str] = ()) -> bool:
        """Return whether the tensor is saved, without recording it as seen.

        Args:
            name: the tensor's name.
            ignored: names of collections that do not count.
        """
        return any(each.matches(name) for each in self.saving if each.name not in ignored)

    def is_relevant(self, name: str, ignored: Sized[str] = ()) -> bool:
        """Return whether the tensor is saved, observed, or saved if another one is non-finite.

        Args:
            name: the tensor's name.
            ignored: names of collections that do not count.
        """
        if self.saves(name, ignored):
            return True
        return bool(self.armed) and (self.may_save(name) or self.trigger(name) is not None)

    def words(self, known: Sized[str] = ()) -> set[str]:
        """Return the words in all regexes and names of the plan, and their last parts.

        Args:
            known: regexes to ignore.

        Example:
            A regex `output_logits$` has the words `output_logits` and `logits`.
        """
        if self._words is None:
            groups = [self._plan.group_of(self.mode, config) for config in self.armed]
            collections = [*self.saving, *(each for group in groups for each in group)]
            texts = [text for each in collections
                     for text in (*each.include_regex, *each.tensor_names)]  # fmt: skip
            texts += [text for config in self.armed for text in config.when_nan]
            unknown = [text for text in texts if text not in known]
            found = {word for text in unknown for word in re.findall(r"\w+", text)}
            parts = {word[index + 1 :] for word in found
                     for index, letter in enumerate(word) if letter == "_"}  # fmt: skip
            self._words = (found | parts) - {""}
        return self._words

    def may_save(self, name: str) -> bool:
        """Return whether the tensor would be saved if an observed one were non-finite."""
        if name not in self._held:
            groups = [self._plan.group_of(self.mode, config) for config in self.armed]
            self._held[name] = any(each.matches(name) for group in groups for each in group)
        return self._held[name]

    def trigger(self, name: str) -> SaveConfigMode | None:
        """Return the armed schedule that observes this tensor."""
        if name not in self._triggers:
            self._triggers[name] = next(
                (config for config in self.armed if config.watches(name)), None
            )
        return self._triggers[name]


class StepCache(Generic[V]):
    """Values that an adapter computes once per kind of step.

    `Pipeline.new_cache` makes one; it is cleared when the plan or the model changes, and at close.

    Example:
        >>> cache.get(plan, "weights", lambda: names_of(model))  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._values: dict[tuple[StepPlan, object], V] = {}

    def get(self, plan: StepPlan, key: object, compute: Callable[[], V]) -> V:
        """Return the value of a key at such steps, computed on first use."""
        try:
            return self._values[plan, key]
        except KeyError:
            value = self._values[plan, key] = compute()
            return value

    def peek(self, plan: StepPlan, key: object) -> V | None:
        """Return the value of a key; None when it is unknown."""
        return self._values.get((plan, key))

    def put(self, plan: StepPlan, key: object, value: V) -> None:
        """Set the value of a key."""
        self._values[plan, key] = value

    def clear(self) -> None:
        """Drop all values: they may hold parameters and memory of a model."""
        self._values.clear()
