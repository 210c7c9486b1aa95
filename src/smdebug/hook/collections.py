"""The collections of a hook, and the plan that is made of them."""

from __future__ import annotations

import copy
import difflib
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from smdebug.config.collection import CollectionKeys
from smdebug.config.collection_manager import CollectionManager, check_included
from smdebug.exceptions import InvalidCollectionConfiguration
from smdebug.hook.plan import SavePlan
from smdebug.hook.rules.rule_collections import add_rule_collections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from smdebug.config.options import HookOptions
    from smdebug.config.rule_requirements import TensorRequirement
    from smdebug.hook.adapter import Adapter


class HookCollections:
    """Keeps the collections of a hook and makes its plan of them.

    Args:
        adapter: the adapter's class, which names the default collections.
        options: the hook's options.
        prepared: collections that module-level functions made before there was a hook.
        requirements: what the hook's rules need.
        on_change: called after every change.

    Attributes:
        manager: the collections.
        included: the names of those that are saved.
        of_rules: the collections that are saved for rules.
        plan: the plan; `refresh` replaces it after changes.
    """

    def __init__(
        self,
        adapter: type[Adapter],
        options: HookOptions,
        prepared: CollectionManager,
        requirements: Iterable[TensorRequirement],
        on_change: Callable[[], None],
    ) -> None:
        self._adapter = adapter
        self._options = options
        known = adapter.default_collections
        check_included(options.include_collections, known, prepared.get_collections())
        self.manager = self._new_manager(prepared)
        self.included = {*options.include_collections, *adapter.always_saved}
        if options.include_regex:
            self.included.add(CollectionKeys.DEFAULT)
        if options.save_all:
            self.included.add(CollectionKeys.ALL)
        self.of_rules = add_rule_collections(self.manager, requirements, options)
        self.included |= {each.collection.name for each in self.of_rules}
        self.plan = SavePlan(self.manager.get_collections(), self.included, options)
        self._on_change = on_change
        self._changed = True
        self._observes = True
        self.manager.observe(self.mark_changed)

    def mark_changed(self) -> None:
        """Have the plan made again before the next step."""
        if self._observes:
            self._changed = True
            self._on_change()

    def refresh(self, resolve: Callable[[CollectionManager], None]) -> bool:
        """Make the plan again if a collection has changed.

        Args:
            resolve: turns what a framework's collections hold besides names and regexes into those.

        Returns:
            Whether there is a new plan.

        Raises:
            InvalidCollectionConfiguration: a collection names no tensor at all.
        """
        if not self._changed:
            return False
        resolve(self.manager)
        collections = self.manager.get_collections()
        # A rule may be about tensors that the framework does not have; it reports that itself.
        of_rules = {each.name for pair in self.of_rules for each in (pair.collection, pair.named)}
        known = {*self._adapter.default_collections, *self.plan.seen, *of_rules}
        for name, collection in collections.items():
            if name not in known and collection.is_empty():
                near = difflib.get_close_matches(name.lower(), known, n=1)
                raise InvalidCollectionConfiguration(name, near[0] if near else None)
        included = set(self.included)
        if CollectionKeys.ALL in included:
            included |= set(collections)
        self.plan = SavePlan(collections, included, self._options, self.plan)
        self._changed = False
        return True

    def name_of(self, name: str) -> str:
        """Return the name of a collection, which is created if needed; `bias` finds `biases`."""
        with self._without_new_plan():
            return self.manager.get(name).name

    def remember(self, tensor: str, collections: Iterable[str]) -> None:
        """Record that a tensor of these collections is saved; new collections are created."""
        for name in collections:
            # With the configuration of now, also before the plan is made again.
            if self._changed or name not in self.plan.collections:
                with self._without_new_plan():
                    collection = self.manager.get(name)
                self.plan.add(collection, self._options)
            self.plan.see(name, tensor)

    def add_tensor(self, collection: str, tensor: str) -> None:
        """Add a tensor to a collection at once, without making the plan again.

        For names that a framework reveals during training, and that no regex has matched yet.
        """
        planned = self.plan.collections.get(collection)
        if planned is not None and not planned.has_tensor_name(tensor):
            with self._without_new_plan():
                for each in (planned, self.manager.get(collection)):
                    each.add_tensor_name(tensor)
            self.plan.forget_ever(tensor)

    def exclude_tensor(self, collection: str, tensor: str) -> None:
        """Exclude a tensor from a collection whose regexes match its name, at once."""
        planned = self.plan.collections.get(collection)
        if planned is not None and planned.matches(tensor):
            with self._without_new_plan():
                for each in (planned, self.manager.get(collection)):
                    each.exclude(f"^{re.escape(tensor)}$")
            self.plan.forget_ever(tensor)

    @contextmanager
    def _without_new_plan(self) -> Iterator[None]:
        """Let changes of collections pass: the plan gets them, too."""
        self._observes = False
        try:
            yield
        finally:
            self._observes = True

    def to_json(self) -> str:
        """Return the contents of the collections file."""
        resolved = CollectionManager()
        for name, collection in self.plan.collections.items():
            shown = copy.copy(collection)
            shown.tensor_names = collection.tensor_names | self.plan.seen.get(name, set())
            resolved.add(shown)
        resolved.update_meta(self.manager.meta)
        return resolved.to_json()

    def _new_manager(self, prepared: CollectionManager) -> CollectionManager:
        manager = CollectionManager()
        # Of the adapter's own class, so that they have its methods.
        manager.collection_class = self._adapter.collection_class
        for name, regexes in self._adapter.default_collections.items():
            manager.get(name).include(list(regexes))
        manager.get(CollectionKeys.DEFAULT).include(list(self._options.include_regex))
        if self._options.save_all:
            manager.get(CollectionKeys.ALL).include(".*")
        for name in self._options.include_collections:
            manager.get(name)
        for collection in prepared.get_collections().values():
            manager.overlay(collection)
        return manager
