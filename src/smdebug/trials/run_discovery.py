"""Finding the runs below a place, without opening them."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import SMDebugValueError
from smdebug.storage.format.keys import END_KEY
from smdebug.storage.stores.base import Store, open_store
from smdebug.storage.stores.local import LocalStore
from smdebug.storage.stores.object_store import ObjectStore
from smdebug.storage.stores.retrying import READING_SECONDS, retrying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from smdebug.storage.stores.base import Buffer

# Files at the top of a run, and what lies in its folders: what only a run has.
_FILES = (END_KEY, "claim.smd")
_FOLDERS = {
    "collections": re.compile(r"\d+"),
    "index": re.compile(r"\d{9,}"),
    "events": re.compile(r"\d{12}"),
    "locks": re.compile(r".+\.lock"),
}
# Every run has one of these; listing all events would take long.
_ASKED = ("collections", "index", "locks")
_PART = re.compile(
    rf"(?:(.*?)/)?(?:{'|'.join(map(re.escape, _FILES))}"
    r"|collections/\d+/[^/]+_collections\.json|index/\d{9,}/[^/]+"
    r"|events/\d{12}/[^/]+|locks/[^/]+\.lock)"
)


@dataclass(frozen=True)
class FoundRun:
    """A run that was found.

    Attributes:
        path: from the place that was searched; "." when it is that place.
        store: where it is kept; its listings are already known where asking again would cost.
        size: of all its files, in bytes.
        modified: when its newest file was written, in seconds since 1970.
    """

    path: str
    store: Store
    size: int
    modified: float


def find_runs(place: str, unreadable: Callable[[str], Any] | None = None) -> Iterator[FoundRun]:
    """Finds every run below a place, which may be one itself.

    What lies inside of a run is not searched, nor what lies behind symbolic links.

    Args:
        place: a directory or a URL.
        unreadable: told the directories that could not be read.

    Raises:
        SMDebugValueError: there is no such place.

    Example:
        >>> for run in find_runs("runs"):  # doctest: +SKIP
        ...     print(run.path, run.size)
    """
    store = open_store(place)
    if not store.exists():
        raise SMDebugValueError(
            f"expected a directory or a URL below which runs lie, got {place!r}, which does not "
            "exist or is no directory"
        )
    if isinstance(store, LocalStore):
        yield from _local_runs(store.root, unreadable or (lambda folder: None))
    elif isinstance(store, ObjectStore):
        yield from _listed_runs(retrying(store, READING_SECONDS), store.entries())
    else:
        sizes = ((key, len(store.read(key)), 0.0) for key in store.list())
        yield from _listed_runs(store, sizes)


def is_run(store: Store) -> bool:
    """Whether a place holds parts that only a run has, itself and not below it.

    Args:
        store: the place, which need not be there.

    Example:
        >>> from smdebug.storage.stores.base import open_store
        >>> is_run(open_store("memory://nothing"))
        False
    """
    if isinstance(store, LocalStore):
        names = _names(store.root)
        return names is not None and _is_run(store.root, names)
    return any(_is_there(store, key) for key in _FILES) or any(
        match is not None and not match[1]
        for part in _ASKED
        for match in map(_PART.fullmatch, store.list(f"{part}/"))
    )


def _is_there(store: Store, key: str) -> bool:
    # Not by its listing: an object store would list everything beside it.
    try:
        store.read(key, 0, 0)
    except KeyError:
        return False
    return True


# ---- in directories


def _local_runs(root: str, unreadable: Callable[[str], Any]) -> Iterator[FoundRun]:
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        names = _names(folder)
        if names is None:
            unreadable(folder)
            continue
        if _is_run(folder, names):
            size, modified = _extent(folder)
            yield FoundRun(os.path.relpath(folder, root), LocalStore(folder), size, modified)
        else:
            waiting += [f"{folder}/{name}" for name, inside in names.items() if inside]


def _names(folder: str) -> dict[str, bool] | None:
    """What lies in a directory, and whether it is a directory itself; None if nobody may know."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except OSError:
        return None


def _is_run(folder: str, names: dict[str, bool]) -> bool:
    if any(names.get(name) is False for name in _FILES):
        return True
    return any(
        pattern.fullmatch(name)
        for part, pattern in _FOLDERS.items()
        if names.get(part)
        for name in _names(f"{folder}/{part}") or ()
    )


def _extent(folder: str) -> tuple[int, float]:
    """The size of all files below a directory, and when the newest was written."""
    size, modified = 0, 0.0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(f"{path}/{name}")
            except OSError:
                # Gone meanwhile.
                continue
            size += status.st_size
            modified = max(modified, status.st_mtime)
    return size, modified


# ---- in object stores


def _listed_runs(store: Store, entries: Iterable[tuple[str, int, float]]) -> Iterator[FoundRun]:
    """The runs in one listing of everything."""
    known = sorted(entries)
    keys = [key for key, _, _ in known]
    roots = {f"{match[1]}/" if match[1] else "" for key in keys if (match := _PART.fullmatch(key))}
    above = None
    for root in sorted(roots):
        if above is not None and root.startswith(above):
            continue
        above = root
        first = bisect_left(keys, root)
        end = bisect_left(keys, f"{root[:-1]}0") if root else len(keys)
        files = known[first:end]
        inside = ListedStore(store, root, [key[len(root) :] for key in keys[first:end]])
        size, modified = sum(size for _, size, _ in files), max(time for _, _, time in files)
        yield FoundRun(root[:-1] or ".", inside, size, modified)


class ListedStore:
    """A folder of a store as a store to read from, which knows what lies in it.

    Args:
        inner: the store.
        folder: the folder, with a slash behind it; "" for all of it.
        keys: what lies in it, sorted.
    """

    # Many runs are read at a time, each by a thread of its own.
    parallel = 1
    remote = True

    def __init__(self, inner: Store, folder: str, keys: list[str]) -> None:
        self.url = f"{inner.url.rstrip('/')}/{folder}".rstrip("/")
        self._inner, self._folder, self._keys = inner, folder, keys

    def look_again(self) -> None:
        """Lists anew: what was there may have been replaced."""
        keys = self._inner.list(self._folder)
        self._keys = [key[len(self._folder) :] for key in keys]

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        return self._inner.read(self._folder + key, start, length)

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        raise NotImplementedError(f"{self.url} was opened to be read")

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        return (key for key in self._keys if key.startswith(prefix) and key > after)

    def delete(self, key: str) -> None:
        raise NotImplementedError(f"{self.url} was opened to be read")

    def exists(self) -> bool:
        return True

    def first(self) -> str | None:
        return next(iter(self._keys), None)

    def path(self, key: str) -> str | None:
        return None
