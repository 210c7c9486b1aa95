"""Store in the memory of this process: for tests, notebooks and benchmarks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, ClassVar

from smdebug.storage.stores.base import Buffer, check_key, check_prefix, cut_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class MemoryStore:
    """A `Store` over a dictionary.

    Example:
        >>> store = MemoryStore()
        >>> store.write("a/b", [b"12", b"3"])
        >>> bytes(store.read("a/b", 1))
        b'23'
    """

    parallel = 1
    remote = False
    _named: ClassVar[dict[str, MemoryStore]] = {}

    def __init__(self, url: str = "memory://") -> None:
        self.url = url
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @classmethod
    def named(cls, url: str) -> MemoryStore:
        """Return the store of this process with this URL."""
        return cls._named.setdefault(url, cls(url))

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        data = self._objects[check_key(key)]
        first, end = cut_range(len(data), start, length)
        return memoryview(data)[first:end]

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        data = b"".join(chunks)
        with self._lock:
            self._objects[check_key(key)] = data

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        with self._lock:
            check_prefix(prefix)
            keys = sorted(key for key in self._objects if key.startswith(prefix) and key > after)
        return iter(keys)

    def exists(self) -> bool:
        return True

    def first(self) -> str | None:
        return next(iter(self._objects), None)

    def path(self, key: str) -> str | None:
        return None

    def delete(self, key: str) -> None:
        with self._lock:
            self._objects.pop(check_key(key), None)
