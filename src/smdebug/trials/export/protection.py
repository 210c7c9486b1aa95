"""Keeping exports away from runs: what is written must never change one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from smdebug.exceptions import SMDebugError, SMDebugValueError
from smdebug.storage.stores.base import open_store
from smdebug.storage.stores.local import LocalStore
from smdebug.trials.run_discovery import find_runs, is_run

if TYPE_CHECKING:
    from collections.abc import Iterator

_URL = re.compile(r"([a-z0-9+.-]+://[^/]*)(.*)", re.IGNORECASE | re.DOTALL)


def require_outside_runs(run: str, out: str, replaces_run: bool = False) -> None:
    """Refuses to write to a run, or into one.

    Args:
        run: the run that is read.
        out: a file, a directory or a URL.
        replaces_run: it may be a run, of which nothing stays; but not one that is above the run
            that is read.

    Raises:
        SMDebugValueError: it lies there.
    """
    for here in _places(out):
        for there in _places(run):
            if _lies_in(here, there) or (replaces_run and _lies_in(there, here)):
                raise SMDebugValueError(
                    f"OUT must lie apart from the run, got {out} for the run {run}; choose another"
                )
        if not replaces_run and is_run(open_store(here)):
            raise SMDebugValueError(
                f"OUT must lie apart from runs, got {out}, which is one; choose another"
            )
        for above in _above(here):
            if _is_run_above(above):
                raise SMDebugValueError(
                    f"OUT must lie apart from runs, got {out}, which lies in the run {above}; "
                    "choose another"
                )


def require_no_run_below(out: str) -> None:
    """Refuses a directory that runs lie in: nothing in it is replaced.

    Raises:
        SMDebugValueError: there are some.
    """
    for found in find_runs(out):
        if found.path != ".":
            raise SMDebugValueError(
                f"OUT must be a directory without runs to be replaced, got {out}, which holds the "
                f"run {found.path}; choose another"
            )


def _places(path: str) -> list[str]:
    """Where a path leads; for a link also where it lies itself: that is what is replaced."""
    text = path.strip()
    if _URL.fullmatch(text) and not text.lower().startswith("file://"):
        # Two names of one scheme. Not opened to be asked: finding credentials takes a while.
        return [re.sub(r"^s3a://", "s3://", text.rstrip("/"))]
    root = Path(LocalStore(re.sub(r"^file://", "", text, flags=re.IGNORECASE)).root)
    return list(dict.fromkeys([str(root.resolve()), str(root.parent.resolve() / root.name)]))


def _lies_in(place: str, other: str) -> bool:
    return f"{place}/".startswith(f"{other.rstrip('/')}/")


def _above(place: str) -> Iterator[str]:
    match = _URL.fullmatch(place)
    if match is None:
        yield from map(str, Path(place).parents)
        return
    folders = match[2].strip("/").split("/")
    for count in range(len(folders) - 1, -1, -1):
        yield "/".join([match[1], *folders[:count]])


def _is_run_above(place: str) -> bool:
    try:
        return is_run(open_store(place))
    except SMDebugError:
        # Who may write below a place need not be allowed to look at it.
        return False
