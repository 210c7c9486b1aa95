"""The end-of-job marker under the path of smdebug 1.0."""

from __future__ import annotations

from smdebug.exceptions import SMDebugRuntimeError
from smdebug.storage.layout import END_KEY
from smdebug.storage.reader import RunReader
from smdebug.storage.store import open_store

__all__ = ["check_dir_exists", "has_training_ended", "training_has_ended"]


def training_has_ended(trial_prefix: str) -> None:
    """Marks a run as finished."""
    open_store(trial_prefix).write(END_KEY, [])


def has_training_ended(trial_prefix: str) -> bool:
    """Tells whether a run is marked as finished."""
    return RunReader(open_store(trial_prefix)).finished()


def check_dir_exists(path: str) -> None:
    """Refuses a directory that holds a finished run.

    Raises:
        SMDebugRuntimeError: a run has ended there.
    """
    if has_training_ended(path):
        raise SMDebugRuntimeError(
            f"{path} holds a finished run; expected a new directory or an unfinished run: "
            "choose another out_dir, or delete it"
        )
