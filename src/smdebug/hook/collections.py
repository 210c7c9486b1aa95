"""The collections of a hook: what was asked for, and the plan that is made of it."""

from __future__ import annotations

import copy
import difflib
from typing import TYPE_CHECKING, Any, ClassVar

from smdebug.config import validation
from smdebug.config.collection import Collection, CollectionKeys
from smdebug.config.collection_manager import CollectionManager, check_included
from smdebug.exceptions import (
    InvalidCollectionConfiguration,
    SMDebugTypeError,
    SMDebugValueError,
)
from smdebug.hook.plan import SavePlan
from smdebug.hook.rule_collections import add_rule_collections
from smdebug.hook.rule_thread import RuleSet

if TYPE_CHECKING:
    from smdebug.config.options import HookOptions
    from smdebug.config.reduction_config import ReductionConfig
    from smdebug.config.save_config import SaveConfig


class HookCollections:
    """Keeps the collections of a hook and makes its plan of them.

    An adapter sets the class attributes.

    Args:
        options: everything the hook was told.

    Attributes:
        collection_manager: the collections.
    """

    collection_class: ClassVar[type[Collection]] = Collection
    # The collections that are there from the start, with their regexes.
    default_collections: ClassVar[dict[str, tuple[str, ...]]] = {}
    always_saved: ClassVar[frozenset[str]] = frozenset()
    # Whether the framework lets a hook look at gradients before they are used.
    can_stop_before_update: ClassVar[bool] = False
    # Collections that module-level functions prepared for hooks to come.
    prepared: ClassVar[CollectionManager] = CollectionManager()

    def __init__(self, options: HookOptions) -> None:
        self._options = options
        self._rules = RuleSet(options.rules, options.actions) if options.rules else None
        if options.before_update and self._rules is not None:
            if not self.can_stop_before_update:
                self._refuse_before_update()
            self._rules.before_update_rule()
        prepared = type(self).prepared.get_collections()
        check_included(options.include_collections, self.default_collections, prepared)
        self.collection_manager = self._new_manager()
        self._included = self._included_names()
        needs = [] if self._rules is None else self._rules.needs
        self._fed = add_rule_collections(self.collection_manager, needs, options)
        self._included |= {fed.collection.name for fed in self._fed}
        # What a user asks for may be changed: the plan is made again before the next step.
        self._collections_asked_for = True
        self._planned = ""
        self._plan = SavePlan(self.get_collections(), self._included, options)

    @property
    def save_config(self) -> SaveConfig:
        """When to save, for collections that do not say it themselves."""
        return self._options.save_config

    @property
    def reduction_config(self) -> ReductionConfig:
        """What to save, for collections that do not say it themselves."""
        return self._options.reduction_config

    @property
    def include_regex(self) -> tuple[str, ...]:
        """The regexes given for the collection `default`."""
        return self._options.include_regex

    @property
    def include_collections(self) -> set[str]:
        """The names of the collections that are saved."""
        return set(self._included)

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """Returns a collection of this hook.

        Args:
            name: its name.
            create: make it when it is not there; otherwise that is an `SMDebugValueError`.

        Example:
            >>> hook.get_collection("relu").include("relu_output")  # doctest: +SKIP
        """
        self._collections_asked_for = True
        return self.collection_manager.get(name, create)

    def get_collections(self) -> dict[str, Collection]:
        """Returns all collections of this hook by name."""
        self._collections_asked_for = True
        return self.collection_manager.get_collections()

    def add_collection(self, collection: Collection) -> None:
        """Adds a collection; one of the same name is replaced."""
        if not isinstance(collection, Collection):
            raise SMDebugTypeError(
                f"collection must be a Collection, got {validation.short_repr(collection)} of type "
                f"{type(collection).__name__}"
            )
        self._collections_asked_for = True
        self.collection_manager.add(collection)

    def add_to_collection(self, collection_name: str, variable: Any) -> None:
        """Adds tensor names, or what the framework's `Collection.add` takes, to a collection."""
        self.get_collection(collection_name).add(variable)

    def has_default_configuration(self) -> bool:
        """Whether the hook saves what a hook saves when it is told nothing."""
        return self._included == set(self.always_saved) and not self._options.save_all

    has_default_hook_configuration = has_default_configuration

    def _refuse_before_update(self) -> None:
        raise SMDebugValueError(
            f"before_update must be False for a {type(self).__name__}, got True: its framework "
            'does not show gradients before they are used; on_finding="stop" stops after it'
        )

    def _make_plan(self) -> None:
        """Makes the plan anew if the collections may have changed.

        Raises:
            InvalidCollectionConfiguration: a collection names no tensor at all.
        """
        if not self._collections_asked_for:
            return
        self._resolve_collections()
        asked = self.collection_manager.to_json()
        if asked == self._planned:
            # Asked for, and not changed: what was found out about steps stays.
            self._collections_asked_for = False
            return
        collections = self.collection_manager.get_collections()
        # A rule may be about what a framework does not have; it says so itself.
        of_rules = {each.name for fed in self._fed for each in (fed.collection, fed.named)}
        for name, collection in collections.items():
            known = name in {*self.default_collections, *self._plan.seen, *of_rules}
            if not known and collection.is_empty():
                near = difflib.get_close_matches(name.lower(), self.default_collections, n=1)
                raise InvalidCollectionConfiguration(name, near[0] if near else None)
        included = set(self._included)
        if CollectionKeys.ALL in included:
            included |= set(collections)
        self._plan = SavePlan(collections, included, self._options, self._plan)
        self._planned = asked
        self._collections_asked_for = False

    def _resolve_collections(self) -> None:
        """Turns what an adapter's collections hold beside names and regexes into those."""

    def _remember_name(self, tensor: str, collections: tuple[str, ...]) -> None:
        """Puts a tensor into collections; those that do not exist are made."""
        for name in collections:
            if name not in self._plan.collections:
                self._plan.add(self.collection_manager.get(name), self._options)
            self._plan.see(name, tensor)

    def _collections_json(self) -> str:
        """The contents of the collections file."""
        resolved = CollectionManager()
        for name, collection in self._plan.collections.items():
            shown = copy.copy(collection)
            shown.tensor_names = collection.tensor_names | self._plan.seen.get(name, set())
            resolved.add(shown)
        resolved.update_meta(self.collection_manager.meta)
        return resolved.to_json()

    def _new_manager(self) -> CollectionManager:
        manager = CollectionManager()
        # Of the adapter's own kind, so that they have its methods.
        manager.collection_class = self.collection_class
        for name, regexes in self.default_collections.items():
            manager.get(name).include(list(regexes))
        manager.get(CollectionKeys.DEFAULT).include(list(self._options.include_regex))
        if self._options.save_all:
            manager.get(CollectionKeys.ALL).include(".*")
        for name in self._options.include_collections:
            manager.get(name)
        for collection in type(self).prepared.get_collections().values():
            manager.overlay(collection)
        return manager

    def _included_names(self) -> set[str]:
        included = {*self._options.include_collections, *self.always_saved}
        if self._options.include_regex:
            included.add(CollectionKeys.DEFAULT)
        if self._options.save_all:
            included.add(CollectionKeys.ALL)
        return included
