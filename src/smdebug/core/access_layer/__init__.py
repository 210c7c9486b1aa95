"""Files, objects in S3 and the end-of-job marker under the path of smdebug 1.0."""

from __future__ import annotations

import time

from smdebug.config import environment
from smdebug.core.access_layer.file import TSAccessFile
from smdebug.core.access_layer.s3 import TSAccessS3
from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdebug.storage.format.keys import END_KEY
from smdebug.storage.reader import RunReader
from smdebug.storage.stores.base import open_store

__all__ = [
    "DEFAULT_GRACETIME_FOR_RULE_STOP_SEC",
    "ENV_RULE_STOP_SIGNAL_FILENAME",
    "TSAccessFile",
    "TSAccessS3",
    "check_dir_exists",
    "has_training_ended",
    "is_rule_signalled_gracetime_passed",
    "training_has_ended",
]

ENV_RULE_STOP_SIGNAL_FILENAME = "SAGEMAKER_ENV_RULE_STOP_SIGNAL_FILE"
DEFAULT_GRACETIME_FOR_RULE_STOP_SEC = 60


def training_has_ended(trial_prefix: str) -> None:
    """Marks a run as finished."""
    open_store(trial_prefix).write(END_KEY, [])


def has_training_ended(trial_prefix: str) -> bool:
    """Return whether a run is marked as finished."""
    return RunReader(open_store(trial_prefix)).finished()


def check_dir_exists(path: str) -> None:
    """Refuse a directory that holds a finished run.

    Raises:
        SMDebugRuntimeError: a run has ended there.
    """
    if has_training_ended(path):
        raise SMDebugRuntimeError(
            f"{path} holds a finished run; expected a new directory or an unfinished run: "
            "choose another out_dir, or delete it"
        )


def is_rule_signalled_gracetime_passed(trial_prefix: str) -> bool:
    """Return whether a rule was asked to stop, and the grace time is over.

    Args:
        trial_prefix: the run that the rule looks at; the signal is the same for all of them.

    Raises:
        SMDebugValueError: the file that `SAGEMAKER_ENV_RULE_STOP_SIGNAL_FILE` names holds no time.
    """
    path = environment.rule_stop_signal_file()
    if path is None:
        return False
    folder, _, name = path.rpartition("/")
    try:
        text = bytes(open_store(folder or ".").read(name)).decode(errors="replace")
    except KeyError:
        return False
    try:
        asked = float(text)
    except ValueError:
        raise SMDebugValueError(
            f"{path} must hold the time at which the rule was asked to stop, in seconds since "
            f"1970, got {text[:80]!r}"
        ) from None
    return time.time() > asked + environment.rule_stop_grace_seconds()
