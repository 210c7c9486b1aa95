"""The import path `smdebug.core.locations` of smdebug 1.0: where files of format v1 lie."""

from __future__ import annotations

from dataclasses import dataclass

from smdebug.exceptions import SMDebugValueError
from smdebug.storage.format.keys import (
    EVENTS_PREFIX,
    INDEX_PREFIX,
    parse_index_key,
    v1_event_key,
    v1_index_key,
)

__all__ = ["IndexFileLocationUtils", "TensorFileLocation"]


@dataclass(frozen=True)
class TensorFileLocation:
    """The event file of a step and a worker.

    Example:
        >>> TensorFileLocation(10, "worker_0").get_file_location("/tmp/run")
        '/tmp/run/events/000000000010/000000000010_worker_0.tfevents'
    """

    step_num: int
    worker_name: str

    def get_file_location(self, trial_dir: str = "") -> str:
        """Return the path of the file."""
        return _joined(trial_dir, v1_event_key(self.step_num, self.worker_name))

    @staticmethod
    def get_dir(trial_dir: str) -> str:
        """Return the directory of all event files."""
        return _joined(trial_dir, EVENTS_PREFIX.rstrip("/"))

    @classmethod
    def get_step_dir_path(cls, trial_dir: str, step_num: int) -> str:
        """Return the directory of the event files of a step."""
        return cls(step_num, "worker_0").get_file_location(trial_dir).rpartition("/")[0]


class IndexFileLocationUtils:
    """Index files: which one is of which step.

    Example:
        >>> IndexFileLocationUtils.get_index_key_for_step("/tmp/run", 1234, "worker_0")
        '/tmp/run/index/000000001/000000001234_worker_0.json'
    """

    MAX_INDEX_FILE_NUM_IN_INDEX_PREFIX = 1000

    @staticmethod
    def get_index_path(path: str) -> str:
        """Return the directory of all index files."""
        return _joined(path, INDEX_PREFIX.rstrip("/"))

    @staticmethod
    def get_index_prefix_for_step(step_num: int) -> str:
        """Return the name of the directory that has the index file of a step."""
        return v1_index_key(step_num, "worker_0").split("/")[1]

    @classmethod
    def next_index_prefix_for_step(cls, step_num: int) -> str:
        """Return the name of the directory that follows it."""
        return cls.get_index_prefix_for_step(step_num + cls.MAX_INDEX_FILE_NUM_IN_INDEX_PREFIX)

    @staticmethod
    def get_index_key_for_step(trial_prefix: str, step_num: int, worker_name: str) -> str:
        """Return the path of the index file of a step and a worker."""
        return _joined(trial_prefix, v1_index_key(step_num, worker_name))

    @staticmethod
    def parse_step_from_index_file_name(index_file_name: str) -> int:
        """Return the step that an index file is of."""
        name = index_file_name.rpartition("/")[2]
        found = parse_index_key(f"{INDEX_PREFIX}{0:09d}/{name}")
        if found is None:
            raise SMDebugValueError(
                f"index_file_name must be like 000000001234_worker_0.json, got {index_file_name!r}"
            )
        return found.step

    @staticmethod
    def get_prefix_from_index_file(index_file: str) -> str:
        """Return the run that an index file belongs to."""
        prefix, found, _ = index_file.rpartition(f"/{INDEX_PREFIX}")
        if not found:
            raise SMDebugValueError(
                f"index_file must be a path with /{INDEX_PREFIX} in it, got {index_file!r}"
            )
        return prefix


def _joined(trial_dir: str, key: str) -> str:
    return f"{trial_dir.rstrip('/')}/{key}" if trial_dir else key
