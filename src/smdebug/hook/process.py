"""The hook of a process as a framework's module-level functions see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from smdebug.config import environment
from smdebug.config.collection_manager import CollectionManager
from smdebug.hook.base import BaseHook
from smdebug.hook.current import current_hook, del_hook

if TYPE_CHECKING:
    from pathlib import Path

_Hook = TypeVar("_Hook", bound=BaseHook)


class ProcessHook(Generic[_Hook]):
    """Finds, or makes, the hook of one framework, and its collections before it is there.

    Args:
        kind: the framework's hook class.
    """

    def __init__(self, kind: type[_Hook]) -> None:
        self._kind = kind
        # Of the framework's own kind, so that they take its modules and variables.
        self.reset()

    def get_hook(self, json_config_path: str | Path | None, create: bool) -> _Hook | None:
        """Returns the hook; one of another framework is forgotten."""
        if not environment.use_smdebug():
            return None
        hook = current_hook()
        if isinstance(hook, self._kind):
            return hook
        if hook is not None:
            del_hook()
        if not create:
            return None
        try:
            return self._kind.create_from_json_file(json_config_path)
        except FileNotFoundError:
            return None

    def manager(self) -> CollectionManager:
        """The collections of the present hook, or those that the next one will start with."""
        hook = current_hook()
        if isinstance(hook, self._kind) and not hook.closed:
            hook.get_collections()
            return hook.collection_manager
        return self._kind.prepared

    def reset(self) -> None:
        """Forgets what the next hook would have started with."""
        self._kind.prepared = CollectionManager()
        self._kind.prepared.collection_class = self._kind.collection_class
