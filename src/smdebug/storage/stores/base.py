"""The contract between a run and the place it is kept, and the way from a path to a store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from smdebug.addresses import checked_address
from smdebug.exceptions import SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Buffer = bytes | bytearray | memoryview

_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*)://")
_OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https")


@runtime_checkable
class Store(Protocol):
    """Bytes by key.

    Keys are relative and '/'-separated. Objects are written whole and never change, so whoever
    has read one may keep it. A missing key raises `KeyError`.

    Attributes:
        url: what a person would call the place, for messages.
        parallel: how many reads are worth having under way at once.
        remote: whether a request costs a round trip, so that fewer and larger ones pay.
    """

    url: str
    parallel: int
    remote: bool

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        """Returns a read-only view of an object, or of a piece of it.

        A negative `start` counts from the end. A range that reaches over the end is cut there,
        as a slice would be.
        """

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        """Writes a whole object. Nobody ever sees a part of it; a failure leaves none."""

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        """Yields the keys that start with `prefix` and sort behind `after`, sorted."""

    def delete(self, key: str) -> None:
        """Removes an object. A missing one is no error."""

    def exists(self) -> bool:
        """Whether the place itself is there: the directory, the bucket."""

    def first(self) -> str | None:
        """Something that lies in the place, whether it is a key or not; None when it is empty."""

    def path(self, key: str) -> str | None:
        """The file that other programs can open for a key; None when there is no such file."""


def check_key(key: str) -> str:
    """Returns the key, or raises `SMDebugValueError` when it could lead out of the store."""
    parts = key.split("/")
    if not key or "\\" in key or "\0" in key or any(part in ("", ".", "..") for part in parts):
        raise SMDebugValueError(
            f"expected a relative key such as 'events/x' that stays inside the run, got {key!r}"
        )
    return key


def check_prefix(prefix: str) -> str:
    """Returns the folder that holds all keys of a prefix; refuses one outside the store."""
    folder = prefix.rpartition("/")[0]
    return check_key(folder) if folder else ""


def cut_range(size: int, start: int, length: int | None) -> tuple[int, int]:
    """Turns (start, length) into (first, end) within an object of `size` bytes."""
    first = max(size + start, 0) if start < 0 else min(start, size)
    return first, size if length is None else min(first + length, size)


def open_store(path: str) -> Store:
    """Opens the place a path or URL names, without touching it.

    Args:
        path: a local directory (`~` is expanded), `file://`, or a URL that obstore understands:
            `s3://`, `gs://`, `az://`.

    Example:
        >>> open_store("runs/one").url  # doctest: +ELLIPSIS
        '...runs/one'
    """
    text = str(path).strip()
    if not text:
        raise SMDebugValueError("path must name a directory or a URL, got an empty string")
    checked_address(text)
    match = _SCHEME.match(text)
    scheme = match.group(1).lower() if match else "file"
    if scheme == "file":
        from smdebug.storage.stores.local import LocalStore

        return LocalStore(text[match.end() :] if match else text)
    if scheme == "memory":
        from smdebug.storage.stores.memory import MemoryStore

        return MemoryStore.named(text)
    if scheme in _OBJECT_SCHEMES:
        from smdebug.storage.stores.object_store import ObjectStore

        return ObjectStore(text)
    raise SMDebugValueError(
        f"path has the unknown scheme {scheme!r} in {text!r}; expected a local path or one of "
        f"{', '.join(name + '://' for name in ('file', 'memory', *_OBJECT_SCHEMES))}"
    )
