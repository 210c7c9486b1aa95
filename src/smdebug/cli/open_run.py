"""Opening what a command line names: a run, a tensor of it, a mode."""

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
from smdebug.trials.finding import is_run
from smdebug.trials.opening import require_place

if TYPE_CHECKING:
    from smdebug.storage.stores.base import Store
    from smdebug.trials.trial import Trial

# So many runs are named where a directory of runs was given.
_NAMED = 3


def open_run(path: str) -> Trial:
    """Opens a run that is there; no job is waited for.

    Raises:
        SMDebugValueError: there is none; directories with a similar name are offered.
    """
    store = open_store(path)
    _require_there(store, path)
    try:
        with Bar("opening"):
            # Before anything is said of files that a run would have.
            require_place(store, None)
            return create_trial(path, wait_seconds=0)
    except (MissingCollectionFiles, TrialNotFound) as error:
        raise _no_run(path, error) from error


def open_place(path: str) -> Store:
    """Opens the place of a run, whose files may be damaged or not all there.

    Raises:
        SMDebugValueError: there is no run; those beside it with a similar name are offered.
    """
    store = open_store(path)
    _require_there(store, path)
    try:
        require_place(store, None)
        # An empty directory may be that of a run to come; there is nothing to do with it yet.
        if store.first() is None:
            raise TrialNotFound(f"{store.url} is empty")
    except TrialNotFound as error:
        raise _no_run(path, error) from error
    return retrying(store, READING_SECONDS)


def mode_named(name: str | None) -> ModeKeys:
    """The mode of `--mode`; all of them, counted together, when it was not given.

    Raises:
        SMDebugValueError: there is none of this name.
    """
    if name is None:
        return ModeKeys.GLOBAL
    if name.upper() in ModeKeys.__members__:
        return ModeKeys[name.upper()]
    known = [mode.name.lower() for mode in ModeKeys]
    raise SMDebugValueError(f"--mode must be one of {', '.join(known)}, got {name!r}")


def require_mode(trial: Trial, mode: ModeKeys) -> None:
    """Raises `SMDebugValueError` when a run has no steps of a mode."""
    known = [each.name.lower() for each in trial.modes()]
    if mode is not ModeKeys.GLOBAL and mode.name.lower() not in known:
        raise SMDebugValueError(
            f"--mode must be one that the run has steps of ({', '.join(known) or 'none'}), got "
            f"{mode.name.lower()!r}"
        )


def nearest_paths(path: str) -> list[str]:
    """Up to three paths that exist and may have been meant; none for a URL."""
    if "://" in path:
        return []
    meant = Path(path).expanduser()
    try:
        beside = [each.name for each in meant.parent.iterdir() if each.is_dir()]
    except OSError:
        return []
    found = difflib.get_close_matches(meant.name, beside, 3)
    return [str(meant.parent / name) for name in found if name != meant.name]


def _require_there(store: Store, path: str) -> None:
    if not store.exists():
        file = "://" not in path and Path(path).expanduser().is_file()
        why = "is a file" if file else f"does not exist{_meant(nearest_paths(path))}"
        raise SMDebugValueError(
            f"RUN must be a directory or a URL that a hook has saved to, got {path!r}, which {why}"
        )


def _no_run(path: str, error: Exception) -> SMDebugValueError:
    return SMDebugValueError(
        f"RUN must be a directory or a URL that a hook has saved to, got {path!r}: "
        f"{error}{_inside(path)}"
    )


def _inside(path: str) -> str:
    """What to do with a directory that is no run, where runs lie in it."""
    if "://" in path:
        return ""
    try:
        folders = sorted(each for each in Path(path).expanduser().iterdir() if each.is_dir())
    except OSError:
        return ""
    found = [str(each) for each in folders if is_run(open_store(str(each)))]
    if not found:
        return ""
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return (
        f". It holds runs ({', '.join(found[:_NAMED])}{more}): name one of them, or list all with "
        f"smdebug ls {shlex.quote(path)}"
    )


def _meant(paths: list[str]) -> str:
    return f"; did you mean {' or '.join(paths)}?" if paths else ""
