"""A view of a run without the steps that an earlier job has left in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdebug.storage.format.keys import INDEX_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.storage.stores.base import Buffer, Store


class FreshRunStore:
    """A store that hides the index files that exist when it is made.

    A job that was killed and started again writes to the same run. Its rules must not evaluate, and
    stop it for, the steps of the first job.

    Args:
        inner: where the run is.

    Attributes:
        has_previous: whether it hides anything.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._hidden = frozenset(inner.list(INDEX_PREFIX))
        self.has_previous = bool(self._hidden)
        self.url, self.parallel, self.remote = inner.url, inner.parallel, inner.remote

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        """Yield the keys of this job."""
        return (key for key in self._inner.list(prefix, after) if key not in self._hidden)

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        return self._inner.read(key, start, length)

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        self._inner.write(key, chunks)

    def delete(self, key: str) -> None:
        self._inner.delete(key)

    def exists(self) -> bool:
        return self._inner.exists()

    def first(self) -> str | None:
        return self._inner.first()

    def path(self, key: str) -> str | None:
        return self._inner.path(key)
