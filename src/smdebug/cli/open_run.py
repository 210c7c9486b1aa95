"""Open the run that a command line names, and parse its mode."""

from __future__ import annotations

import difflib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from smdebug.cli.render.progress import Bar
from smdebug.exceptions import (
    MissingCollectionFiles,
    SMDebugValueError,
    TrialNotFound,
)
from smdebug.mode_keys import ModeKeys
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.retrying import READING_SECONDS, retrying
from smdebug.trials.create import create_trial
from smdebug.trials.run_discovery import is_run
from smdebug.trials.wait import require_place

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Store
    from smdebug.trials.trial import Trial

# How many runs an error lists if the path is a directory of runs.
_LISTED = 3


def open_run(path: str) -> Trial:
    """Open an existing run, without waiting for its job.

    Raises:
        SMDebugValueError: there is no run; the message suggests directories of a similar name.
    """
    store = open_store(path)
    _require_existing(store, path)
    try:
        with Bar("opening"):
            # First: its error is clearer than one about missing files of a run.
            require_place(store, None)
            return create_trial(path, wait_seconds=0)
    except (MissingCollectionFiles, TrialNotFound) as error:
        raise _not_a_run(path, error) from error


def open_run_store(path: str) -> Store:
    """Open the store of a run, whose files may be damaged or incomplete.

    Raises:
        SMDebugValueError: there is no run; the message suggests directories of a similar name.
    """
    store = open_store(path)
    _require_existing(store, path)
    try:
        require_place(store, None)
        # A job that has just started has an empty directory.
        if store.first() is None:
            raise TrialNotFound(f"{store.url} is empty")
    except TrialNotFound as error:
        raise _not_a_run(path, error) from error
    return retrying(store, READING_SECONDS)


def parse_mode(name: str | None) -> ModeKeys:
    """Return the mode of `--mode`, or `GLOBAL` without it.

    Raises:
        SMDebugValueError: the name is unknown.
    """
    if name is None:
        return ModeKeys.GLOBAL
    if name.upper() in ModeKeys.__members__:
        return ModeKeys[name.upper()]
    known = [mode.name.lower() for mode in ModeKeys]
    raise SMDebugValueError(f"--mode must be one of {', '.join(known)}, got {name!r}")


def require_mode(trial: Trial, mode: ModeKeys) -> None:
    """Raise `SMDebugValueError` if a run has no steps of a mode."""
    known = [each.name.lower() for each in trial.modes()]
    if mode is not ModeKeys.GLOBAL and mode.name.lower() not in known:
        raise SMDebugValueError(
            f"--mode must be one that the run has steps of ({', '.join(known) or 'none'}), got "
            f"{mode.name.lower()!r}"
        )


def nearest_paths(path: str) -> list[str]:
    """Return up to three existing paths of a similar name; none for a URL."""
    if "://" in path:
        return []
    wanted = Path(path).expanduser()
    try:
        siblings = [each.name for each in wanted.parent.iterdir() if each.is_dir()]
    except OSError:
        return []
    found = difflib.get_close_matches(wanted.name, siblings, 3)
    return [str(wanted.parent / name) for name in found if name != wanted.name]


def _require_existing(store: Store, path: str) -> None:
    if not store.exists():
        file = "://" not in path and Path(path).expanduser().is_file()
        why = "is a file" if file else f"does not exist{_did_you_mean(nearest_paths(path))}"
        raise SMDebugValueError(
            f"RUN must be a directory or a URL that a hook has saved to, got {path!r}, which {why}"
        )


def _not_a_run(path: str, error: Exception) -> SMDebugValueError:
    return SMDebugValueError(
        f"RUN must be a directory or a URL that a hook has saved to, got {path!r}: "
        f"{error}{_runs_inside(path)}"
    )


def _runs_inside(path: str) -> str:
    """Return a hint that lists the runs in a directory, or an empty string."""
    if "://" in path:
        return ""
    try:
        folders = sorted(each for each in Path(path).expanduser().iterdir() if each.is_dir())
    except OSError:
        return ""
    found = [str(each) for each in folders if is_run(open_store(str(each)))]
    if not found:
        return ""
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return (
        f". It holds runs ({', '.join(found[:_LISTED])}{more}): name one of them, or list all with "
        f"smdebug ls {shlex.quote(path)}"
    )


def _did_you_mean(paths: list[str]) -> str:
    return f"; did you mean {' or '.join(paths)}?" if paths else ""
