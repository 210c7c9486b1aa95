"""The hook of a process as a framework's module-level functions see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from smdebug.config import environment
from smdebug.config.collection import Collection, CollectionKeys
from smdebug.config.collection_manager import CollectionManager
from smdebug.hook.base import BaseHook
from smdebug.hook.current import current_hook, del_hook

if TYPE_CHECKING:
    from smdebug.config.json_config import JsonConfigSource

_Hook = TypeVar("_Hook", bound=BaseHook)
_Collection = TypeVar("_Collection", bound=Collection)


class ModuleApi(Generic[_Hook, _Collection]):
    """Finds, or makes, the hook of one framework, and its collections before it is there.

    An adapter offers these methods as functions of its module.

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
        """Returns the hook; one of another framework, or of another kind, is forgotten."""
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
        """Returns a collection of the hook of this process; before there is one, of those to come.

        Args:
            name: its name; it is made when there is none.
        """
        return cast("_Collection", self._manager().get(name))

    def get_collections(self) -> dict[str, Collection]:
        """Returns all collections that `get_collection` finds."""
        return self._manager().get_collections()

    def add_to_collection(self, collection_name: str, args: Any) -> None:
        """Adds tensors to a collection: names, and what else the framework's collections take."""
        self._manager().get(collection_name).add(args)

    def add_to_default_collection(self, args: Any) -> None:
        """Adds tensors to the collection `default`."""
        self.add_to_collection(CollectionKeys.DEFAULT, args)

    def reset_collections(self) -> None:
        """Gives the hooks to come the collections they have from the start."""
        self._kind.prepared = CollectionManager()
        # Of the framework's own kind, so that they take its modules and variables.
        self._kind.prepared.collection_class = self._collection

    def _manager(self) -> CollectionManager:
        """The collections of the present hook, or those that the next one will start with."""
        hook = current_hook()
        if isinstance(hook, self._kind) and not hook.closed:
            hook.get_collections()
            return hook.collection_manager
        return self._kind.prepared
