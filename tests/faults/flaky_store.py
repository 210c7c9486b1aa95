"""A store that raises at random: any of its calls may fail, for any reason."""

from __future__ import annotations

import errno
import os
import random
import threading
from typing import TYPE_CHECKING

from smdebug.exceptions import StoreError
from smdebug.storage.stores.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from smdebug.storage.stores.base import Buffer


class Panic(BaseException):
    """As extensions written in Rust raise it: no `Exception`."""


def _system(number: int) -> Callable[[], BaseException]:
    return lambda: OSError(number, os.strerror(number))


REASONS: dict[str, Callable[[], BaseException]] = {
    "no space": _system(errno.ENOSPC),
    "I/O error": _system(errno.EIO),
    "stale handle": _system(errno.ESTALE),
    "no answer": lambda: StoreError("the store does not answer"),
    "no right": lambda: StoreError("the store says no", code="AccessDenied", refused=True),
    "memory": MemoryError,
    "a bug": lambda: ValueError("a bug in a store"),
    "a wrong key": lambda: KeyError("a key that nobody asked for"),
    "a panic": lambda: Panic("a library has given up"),
}


class FlakyStore:
    """A `Store` over a directory that starts to fail on request.

    Args:
        path: the directory.
        seed: of what happens.
        remote: whether it says that it is far away, so that it is tried again.

    Attributes:
        failing: the probability that a call fails; 0.0 at first.
    """

    parallel = 1

    def __init__(self, path: str, seed: int, remote: bool = False) -> None:
        self._inner = LocalStore(path)
        self.url, self.remote = self._inner.url, remote
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        # One reason, or another one each time.
        reasons = sorted(REASONS)
        one = self._random.choice(reasons)
        self._reasons = self._random.choice([reasons, [one]])
        self.failing = 0.0

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        self._maybe_fail()
        return self._inner.read(key, start, length)

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        self._maybe_fail()
        self._inner.write(key, self._passed(chunks))

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        self._maybe_fail()
        return self._passed(self._inner.list(prefix, after))

    def delete(self, key: str) -> None:
        self._maybe_fail()
        self._inner.delete(key)

    def exists(self) -> bool:
        self._maybe_fail()
        return self._inner.exists()

    def first(self) -> str | None:
        self._maybe_fail()
        return self._inner.first()

    def path(self, key: str) -> str | None:
        return self._inner.path(key)

    def _passed(self, things: Iterable[_Thing]) -> Iterator[_Thing]:
        for thing in things:
            # In the middle of it.
            self._maybe_fail(among=20)
            yield thing

    def _maybe_fail(self, among: int = 1) -> None:
        with self._lock:
            fails = self._random.random() < self.failing / among
            reason = self._random.choice(self._reasons)
        if fails:
            raise REASONS[reason]()


if TYPE_CHECKING:
    from typing import TypeVar

    _Thing = TypeVar("_Thing")
