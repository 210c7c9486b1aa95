"""The collections of a hook or of a run."""

from __future__ import annotations

import difflib
import json
import logging
import re
from typing import TYPE_CHECKING, Any, TypeVar

from smdebug.config import validation
from smdebug.config.collection import Collection, DefinedName, collection_name
from smdebug.config.reduction_config import ReductionConfig
from smdebug.config.save_config import SaveConfig
from smdebug.exceptions import SMDebugError, SMDebugTypeError, SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from smdebug.config.untrusted_regex import UntrustedRegex, UntrustedRegexes

_Manager = TypeVar("_Manager", bound="CollectionManager")
_logger = logging.getLogger("smdebug.config")

# The similarity above which an unknown name counts as a misspelling of a known one. `gradient` is
# rejected; scripts have their own collections with names such as `loss`.
_NEAR = 0.82


class CollectionManager:
    """Collections by name, and the metadata of the collections file.

    Args:
        collections: the first collections.

    Attributes:
        collections: collections by name, in the order they were added.
        collection_class: the class of new collections; a framework sets its own.

    Example:
        >>> manager = CollectionManager()
        >>> manager.get("relu").include("relu_output")
        >>> list(manager.get_collections())
        ['relu']
    """

    collection_class: type[Collection] = Collection

    def __init__(self, collections: Iterable[Collection] = ()) -> None:
        self.collections: dict[str, Collection] = {}
        self._meta: dict[str, Any] = {"num_workers": 1}
        self._observer: Callable[[], None] | None = None
        for collection in collections:
            self.add(collection)

    def create_collection(self, name: str) -> Collection:
        """Return the collection of this name; create it if there is none."""
        exact = validation.text("collection name", name)
        name = exact if exact in self.collections else collection_name(exact)
        if name not in self.collections:
            self._put(self.collection_class(name))
        return self.collections[name]

    def add(self, arg: str | Collection) -> None:
        """Add a collection; one of the same name is replaced. A string makes an empty one."""
        if isinstance(arg, Collection):
            self._put(arg)
        elif isinstance(arg, str):
            self.create_collection(arg)
        else:
            raise SMDebugTypeError(
                f"collection must be a Collection or a name, got {validation.short_repr(arg)} "
                f"of type {type(arg).__name__}"
            )

    def _put(self, collection: Collection) -> None:
        self.collections[collection.name] = collection
        if self._observer is not None:
            collection.observe(self._observer)
            self._observer()

    def observe(self, observer: Callable[[], None]) -> None:
        """Have a function called after every change of the collections, also of later ones."""
        self._observer = observer
        for collection in self.collections.values():
            collection.observe(observer)

    def get(self, name: str, create: bool = True) -> Collection:
        """Return a collection.

        Args:
            name: its name; `bias` finds `biases`.
            create: create it if there is none.

        Raises:
            SMDebugValueError: there is none, and `create` is False.
        """
        if create:
            return self.create_collection(name)
        for known in (name, collection_name(name)):
            if known in self.collections:
                return self.collections[known]
        near = validation.did_you_mean(name, self.collections)
        raise SMDebugValueError(
            f"Unknown collection {validation.short_repr(name)}. Choose from "
            f"{', '.join(self.collections) or 'none'}.{near}"
        )

    def overlay(self, collection: Collection) -> Collection:
        """Merge a collection into the one of the same name, which is created if there is none."""
        present = self.create_collection(collection.name)
        present.overlay(collection)
        return present

    def get_collections(self) -> dict[str, Collection]:
        """Return all collections by name."""
        return self.collections

    def set_num_workers(self, num_workers: int) -> None:
        """Set how many workers write to the run."""
        self._meta["num_workers"] = validation.whole_number("num_workers", num_workers, minimum=1)

    def get_num_workers(self) -> int:
        """Return how many workers write to the run."""
        return int(self._meta["num_workers"])

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata of the run (a copy)."""
        return dict(self._meta)

    def update_meta(self, meta: Mapping[str, Any]) -> None:
        """Add metadata, which must be JSON."""
        meta = validation.mapping("meta", meta)
        try:
            json.dumps(dict(meta))
        except (TypeError, ValueError) as error:
            raise SMDebugValueError(
                f"meta must be JSON, got {validation.short_repr(meta)}: {error}"
            ) from error
        num_workers = meta.get("num_workers", self._meta["num_workers"])
        self._meta.update(meta)
        self.set_num_workers(num_workers)

    def to_json_dict(self) -> dict[str, Any]:
        """Return the contents of a collections file.

        smdebug 1.0 rejects a file with keys other than these two.
        """
        collections = {name: each.to_json_dict() for name, each in self.collections.items()}
        return {"collections": collections, "_meta": dict(self._meta)}

    def to_json(self) -> str:
        """Return `to_json_dict` as JSON."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_json(cls: type[_Manager], json_str: str) -> _Manager:
        """Read what `to_json` wrote, or smdebug 1.0.

        Raises:
            SMDebugValueError: the string is not a collections file.
        """
        try:
            data = json.loads(json_str)
        except (TypeError, ValueError) as error:
            raise SMDebugValueError(
                f"collections must be JSON, got {validation.short_repr(json_str)}: {error}"
            ) from error
        return cls.from_json_dict(data)

    @classmethod
    def from_json_dict(
        cls: type[_Manager], data: Mapping[str, Any], regexes: UntrustedRegexes | None = None
    ) -> _Manager:
        """Make a manager from the parsed contents of a collections file.

        Args:
            data: the contents.
            regexes: compiles the regexes of a file of unknown origin; those of the user's own
                files are compiled by `re`, when it is None.
        """
        top = validation.mapping("collections file", data)
        entries = validation.mapping(
            "key 'collections' of the collections file", top.get("collections")
        )
        manager = cls()
        for name, entry in entries.items():
            fields = validation.mapping(f"collection {name!r}", entry)
            untrusted = {} if regexes is None else _untrusted(name, fields, regexes)
            readable = {**fields, **dict.fromkeys(untrusted), "name": fields.get("name", name)}
            readable.update(_readable(name, readable))
            collection = manager.collections[name] = cls.collection_class.from_dict(readable)
            for argument, patterns in untrusted.items():
                collection.add_untrusted(argument, patterns)
        manager.update_meta(validation.mapping("_meta", top.get("_meta") or {}))
        return manager

    @classmethod
    def load_from_string(cls: type[_Manager], s: str) -> _Manager:
        """The same as `from_json`."""
        return cls.from_json(s)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CollectionManager):
            return NotImplemented
        return self.to_json_dict() == other.to_json_dict()

    # Equality is by contents, which change.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self.collections)}>"


def check_included(names: Iterable[str], known: Iterable[str], made: Iterable[str] = ()) -> None:
    """Reject misspelled names of collections to save.

    Other unknown names pass: such a collection may get its regexes until the first step.

    Args:
        names: the names to save.
        known: the names of the collections that a framework has.
        made: the names of the user's collections.

    Raises:
        SMDebugValueError: a name is unknown and nearly that of a known collection.

    Example:
        >>> check_included(["weights", "relu", "weights_2"], ["weights", "gradients"])
    """
    by_lower_case = {name.lower(): name for name in known}
    for name in names:
        if isinstance(name, DefinedName) or name in {*by_lower_case.values(), *made}:
            continue
        near = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=_NEAR)
        # `weights_2` is derived from a known name on purpose; `weightss` is not.
        if near and not (near[0] in name and re.search(r"[_\d]", name.replace(near[0], ""))):
            raise SMDebugValueError(
                f"Unknown collection {name!r} in include_collections. Did you mean "
                f"{by_lower_case[near[0]]!r}? To use this name for a collection of your own, "
                f"create it before the hook with get_collection({name!r})."
            )


def _untrusted(
    name: str, fields: Mapping[str, Any], regexes: UntrustedRegexes
) -> dict[str, dict[str, UntrustedRegex]]:
    """Return the regexes of a stored collection by argument; they are compiled at the first use."""
    found: dict[str, dict[str, UntrustedRegex]] = {}
    for argument in ("include_regex", "exclude_regex"):
        try:
            patterns = validation.names(argument, fields.get(argument))
        except SMDebugError as error:
            _logger.warning("Collection %r: ignoring %s: %s", name, argument, error)
            patterns = []
        found[argument] = {pattern: regexes.get(pattern, name) for pattern in patterns}
    return found


def _readable(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return replacements for the parts of a stored collection that are invalid now.

    smdebug 1.0 accepted invalid save schedules, and older versions of Python accepted regexes that
    this one rejects. The tensors of such a run can still be read.
    """
    parsers: dict[str, Callable[[Any], object]] = {
        "save_config": SaveConfig.from_dict,
        "reduction_config": ReductionConfig.from_dict,
        "include_regex": lambda regexes: Collection(name, include_regex=regexes),
        "exclude_regex": lambda regexes: Collection(name, exclude_regex=regexes),
    }
    replaced: dict[str, Any] = {}
    for key, parse in parsers.items():
        try:
            if fields.get(key) is not None:
                parse(fields[key])
        except SMDebugError as error:
            _logger.warning("Collection %r: ignoring %s: %s", name, key, error)
            replaced[key] = None
    return replaced
