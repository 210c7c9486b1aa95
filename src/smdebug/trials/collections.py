"""The collections of a run: one file per worker, which the job may write anew."""

from __future__ import annotations

from typing import Any

from smdebug.config.collection_manager import CollectionManager
from smdebug.config.untrusted_regex import UntrustedRegexes
from smdebug.exceptions import SMDebugValueError


class RunCollections:
    """What the collections files of all workers say.

    Collections that a script takes from here and changes keep what it did to them.
    """

    def __init__(self) -> None:
        self._files: dict[str, dict[str, Any]] = {}
        self._managers: dict[str, CollectionManager] = {}
        self._regexes = UntrustedRegexes()

    def take(self, files: dict[str, dict[str, Any]]) -> None:
        """Takes over the parsed files of the workers, as far as they are new."""
        for worker, content in files.items():
            if self._files.get(worker) == content:
                continue
            self._files[worker] = content
            manager = _manager(worker, content, self._regexes)
            if worker in self._managers:
                # The job has only added names; what a script did to its collections stays.
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
        """The parsed files of the workers, as they were taken over."""
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
            f"the collections file of {worker} must hold lists of names, got lists in lists deeper "
            "than anybody writes them"
        ) from error


def _add_names(known: CollectionManager, more: CollectionManager) -> None:
    for name, collection in more.get_collections().items():
        present = known.get_collections().setdefault(name, collection)
        present.tensor_names = present.tensor_names | collection.tensor_names
