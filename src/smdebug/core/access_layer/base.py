"""What files and objects of smdebug 1.0 have in common: reading from the beginning on."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["TSAccessBase"]


class TSAccessBase(ABC):
    """Reads what `_load` returns, in chunks."""

    def __init__(self) -> None:
        self._position = 0
        self._closed = False
        self._data: bytes | None = None

    @abstractmethod
    def _load(self) -> bytes:
        """Return everything there is to read."""

    def ingest_all(self) -> None:
        """Read the whole of it; the others that read do so by themselves."""
        if self._data is None:
            self._data = self._load()

    def read(self, n: int) -> bytes:
        """Return the next `n` bytes, fewer at the end."""
        self.ingest_all()
        assert self._data is not None
        found = self._data[self._position : self._position + n]
        self._position += len(found)
        return found

    def has_data(self) -> bool:
        """Whether there is more to read."""
        self.ingest_all()
        assert self._data is not None
        return self._position < len(self._data)
