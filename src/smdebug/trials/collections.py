"""The collections of a run: one file per worker, which a running job rewrites."""

from __future__ import annotations

from typing import Any

from smdebug.config.collection_manager import CollectionManager
from smdebug.config.untrusted_regex import UntrustedRegexes
from smdebug.exceptions import SMDebugValueError


class RunCollections:
    """The contents of the collections files of all workers.

    Changes that a script makes to collections from here are kept.
    """

    def __init__(self) -> None:
        self._files: dict[str, dict[str, Any]] = {}
        self._managers: dict[str, CollectionManager] = {}
        self._regexes = UntrustedRegexes()

    def take(self, files: dict[str, dict[str, Any]]) -> None:
        """Add parsed files of the workers, those that are new."""
        for worker, content in files.items():
            if self._files.get(worker) == content:
                continue
            self._files[worker] = content
            manager = _manager(worker, content, self._regexes)
            if worker in self._managers:
                # A job only adds names; the script's changes to its collections stay.
                _add_names(self._managers[worker], manager)
            else:
                self._managers[worker] = manager

    @property
    def num_workers(self) -> int:
        """How many workers write to the run."""
        return max((each.get_num_workers() for each in self._managers.values()), default=1)

    def workers(self) -> list[str]:
        """The sorted names of the workers."""
        return sorted(self._managers)

    def files(self) -> dict[str, dict[str, Any]]:
        """The parsed files of the workers."""
        return dict(self._files)

    def merged(self) -> CollectionManager:
        """The collections of the first worker, with the tensor names of all."""
        first, *others = [self._managers[worker] for worker in self.workers()]
        for manager in others:
            _add_names(first, manager)
        return first


def _manager(worker: str, content: dict[str, Any], regexes: UntrustedRegexes) -> CollectionManager:
    try:
        return CollectionManager.from_json_dict(content, regexes)
    except RecursionError as error:
        raise SMDebugValueError(
            f"The lists in the collections file of {worker} are nested too deeply"
        ) from error


def _add_names(known: CollectionManager, more: CollectionManager) -> None:
    for name, collection in more.get_collections().items():
        present = known.get_collections().setdefault(name, collection)
        present.tensor_names = present.tensor_names | collection.tensor_names
