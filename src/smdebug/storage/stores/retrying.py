"""Store wrapper that retries failed requests, to survive an outage."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from smdebug.exceptions import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from smdebug.storage.stores.base import Buffer, Store

logger = logging.getLogger("smdebug.storage")

_Answer = TypeVar("_Answer")

# Seconds between two attempts, each of which takes some seconds itself.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
# How long a reader retries: its user is waiting.
READING_SECONDS = 60.0


def retrying(store: Store, seconds: float, quiet: bool = False) -> Store:
    """Wrap a remote store; return any other unchanged, because a disk does not come back.

    Args:
        store: the store.
        seconds: as in `RetryingStore`.
        quiet: as in `RetryingStore`.
    """
    return RetryingStore(store, seconds, quiet) if store.remote else store


class RetryingStore:
    """A store that retries.

    A new attempt is a new request, signed with the current credentials, which obstore's own
    retries cannot do.

    A store that denies something it has never done before, such as writing without permission, is
    not retried.

    Args:
        inner: the store.
        seconds: how long an outage may last; then its error is raised, and each further call has
            one attempt until one succeeds.
        quiet: do not log the start and end of an outage.
    """

    def __init__(self, inner: Store, seconds: float, quiet: bool = False) -> None:
        self.url, self.parallel, self.remote = inner.url, inner.parallel, inner.remote
        self._inner = inner
        self._seconds = seconds
        self._quiet = quiet
        self._lock = threading.Lock()
        self._done: set[str] = set()
        # When the present outage started.
        self._since: float | None = None

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        return self._try("read", lambda: self._inner.read(key, start, length))

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        # A generator can be read only once.
        kept = list(chunks)
        self._try("write", lambda: self._inner.write(key, kept))

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        return iter(self._try("list", lambda: [*self._inner.list(prefix, after)]))

    def delete(self, key: str) -> None:
        self._try("delete", lambda: self._inner.delete(key))

    def exists(self) -> bool:
        return self._try("list", self._inner.exists)

    def first(self) -> str | None:
        return self._try("list", self._inner.first)

    def path(self, key: str) -> str | None:
        return self._inner.path(key)

    def _try(self, operation: str, attempt: Callable[[], _Answer]) -> _Answer:
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                answer = attempt()
            except StoreError as error:
                left = self._left(operation, began, error)
                if left <= 0:
                    raise
                threading.Event().wait(min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE)
            except KeyError:
                # A missing key is an answer.
                self._worked(operation)
                raise
            else:
                self._worked(operation)
                return answer

    def _left(self, operation: str, began: float, error: StoreError) -> float:
        """Return how many seconds a failed call may still be retried."""
        with self._lock:
            if error.refused and operation not in self._done:
                return 0.0
            if self._since is None:
                self._since = began
                if not self._quiet and self._seconds > 0:
                    logger.warning("%s; trying again for up to %g seconds", error, self._seconds)
            return self._since + self._seconds - time.monotonic()

    def _worked(self, operation: str) -> None:
        with self._lock:
            self._done.add(operation)
            if self._since is None:
                return
            lasted, self._since = time.monotonic() - self._since, None
        if not self._quiet:
            logger.warning("%s works again, after %.0f seconds", self.url, lasted)
