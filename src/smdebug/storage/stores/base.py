"""The `Store` protocol, and how a path or URL becomes a store."""

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

    Keys are relative and '/'-separated. Objects are written whole and never change, so their
    content can be cached. A missing key raises `KeyError`.

    Attributes:
        url: the path or URL, for messages.
        parallel: how many concurrent reads are useful.
        remote: whether a request is a round trip, so that fewer and larger requests pay off.
    """

    url: str
    parallel: int
    remote: bool

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        """Return a read-only view of an object, or of a range of it.

        A negative `start` counts from the end. A range is clipped to the object, like a slice.
        """

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        """Write a whole object atomically."""

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        """Yield the keys that start with `prefix` and sort after `after`, sorted."""

    def delete(self, key: str) -> None:
        """Remove an object; do nothing if it is missing."""

    def exists(self) -> bool:
        """Whether the directory or bucket exists."""

    def first(self) -> str | None:
        """Return the name of anything in the directory or bucket; None if it is empty."""

    def path(self, key: str) -> str | None:
        """Return the path under which other programs can open a key; None without a file."""


def check_key(key: str) -> str:
    """Return the key; raise `SMDebugValueError` if it could lead out of the store."""
    parts = key.split("/")
    if not key or "\\" in key or "\0" in key or any(part in ("", ".", "..") for part in parts):
        raise SMDebugValueError(
            f"expected a relative key such as 'events/x' that stays inside the run, got {key!r}"
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return the folder of all keys with a prefix; raise if it is outside the store."""
    folder = prefix.rpartition("/")[0]
    return check_key(folder) if folder else ""


def cut_range(size: int, start: int, length: int | None) -> tuple[int, int]:
    """Convert (start, length) to (first, end) within an object of `size` bytes."""
    first = max(size + start, 0) if start < 0 else min(start, size)
    return first, size if length is None else min(first + length, size)


def open_store(path: str) -> Store:
    """Open the store of a path or URL, without a request.

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
        f"Unknown scheme {scheme!r} in {text!r}. Use a local path or one of "
        f"{', '.join(name + '://' for name in ('file', 'memory', *_OBJECT_SCHEMES))}"
    )
