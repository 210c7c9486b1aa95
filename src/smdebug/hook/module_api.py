"""The hook of this process, and the functions that a framework's module offers for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from smdebug.config import environment
from smdebug.config.collection import Collection, CollectionKeys
from smdebug.config.collection_manager import CollectionManager
from smdebug.exceptions import SMDebugTypeError

if TYPE_CHECKING:
    from smdebug.config.json_config import JsonConfigSource
    from smdebug.hook.hook import BaseHook

_Hook = TypeVar("_Hook", bound="BaseHook")
_Collection = TypeVar("_Collection", bound=Collection)

_current: BaseHook | None = None


def current_hook() -> BaseHook | None:
    """Return the hook of this process, whatever its framework."""
    return _current


def set_hook(hook: BaseHook) -> None:
    """Make a hook the one of this process.

    Raises:
        SMDebugTypeError: it is not a hook.
    """
    from smdebug.hook.hook import BaseHook

    if not isinstance(hook, BaseHook):
        raise SMDebugTypeError(f"hook must be a hook, got {hook!r} of type {type(hook).__name__}")
    global _current
    _current = hook


def del_hook() -> None:
    """Unset the hook of this process; it is not closed."""
    global _current
    _current = None


class ModuleApi(Generic[_Hook, _Collection]):
    """Finds, or creates, the hook of one framework, and its collections before there is a hook.

    A framework offers these methods as functions of its module.

    Args:
        kind: the framework's hook class.
        collection: the class of its collections.
    """

    def __init__(self, kind: type[_Hook], collection: type[_Collection]) -> None:
        self._kind = kind
        self._collection = collection
        self.reset_collections()

    def get_hook(
        self,
        json_config_path: JsonConfigSource | None,
        create: bool,
        kind: type[_Hook] | None = None,
    ) -> _Hook | None:
        """Return the hook; one of another framework, or of another kind, is unset."""
        if not environment.use_smdebug():
            return None
        kind = kind or self._kind
        hook = current_hook()
        if isinstance(hook, kind):
            return hook
        if hook is not None:
            del_hook()
        if not create:
            return None
        try:
            return kind.create_from_json_file(json_config_path)
        except FileNotFoundError:
            return None

    def get_collection(self, name: str) -> _Collection:
        """Return a collection of the hook of this process; before there is one, of the next hook.

        Args:
            name: its name; it is created if it does not exist.
        """
        return cast("_Collection", self._manager().get(name))

    def get_collections(self) -> dict[str, Collection]:
        """Return all collections that `get_collection` finds."""
        return self._manager().get_collections()

    def add_to_collection(self, collection_name: str, args: Any) -> None:
        """Add tensors to a collection: names, and what else the framework's collections take."""
        self._manager().get(collection_name).add(args)

    def add_to_default_collection(self, args: Any) -> None:
        """Add tensors to the collection `default`."""
        self.add_to_collection(CollectionKeys.DEFAULT, args)

    def reset_collections(self) -> None:
        """Give hooks to come the default collections only."""
        self._kind.prepared = CollectionManager()
        # Of the framework's own class, so that they take its modules and variables.
        self._kind.prepared.collection_class = self._collection

    def _manager(self) -> CollectionManager:
        """Return the collections of the current hook, or those that the next one starts with."""
        hook = current_hook()
        if isinstance(hook, self._kind) and not hook.closed:
            return hook.collection_manager
        return self._kind.prepared
