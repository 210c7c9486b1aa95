"""Where an export goes, and what it wrote."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdebug.exceptions import SMDebugValueError
from smdebug.storage.stores.base import open_store
from smdebug.trials.export.protection import require_no_run_below, require_outside_runs

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from smdebug.storage.stores.base import Store


@dataclass
class ExportResult:
    """What an export wrote.

    Attributes:
        out: where it is.
        files: how many files.
        steps: how many global steps something was written of.
        rows: how many tensors at a step.
        left_out: tensors that are missing because the format has no place for them, and why.
        widened: tensors that were written as float32, and what they were.
    """

    out: str
    files: int = 0
    steps: int = 0
    rows: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    widened: dict[str, str] = field(default_factory=dict)


def target_file(run: str, out: str, force: bool) -> tuple[Store, str]:
    """The place and the key of a file that is to be written.

    Args:
        run: the run that is exported.
        out: a file or a URL.
        force: replace it.

    Raises:
        SMDebugValueError: it is there already, and must not be replaced; or it lies in a run.
    """
    _, scheme, place = out.partition("://")
    if scheme and "/" not in place:
        raise SMDebugValueError(f"OUT must name a file in the bucket, got {out}")
    parent, slash, name = out.rpartition("/")
    if name in ("", ".", "..", "~") or ("://" not in out and Path(out).expanduser().is_dir()):
        raise SMDebugValueError(f"OUT must be the name of a file, got the directory {out}")
    require_outside_runs(run, out)
    store = open_store((parent or "/") if slash else ".")
    if not force and name in store.list(name):
        raise SMDebugValueError(_there(out, "is there already"))
    return store, name


def target_directory(
    run: str, out: str, force: bool, own: re.Pattern[str] | None = None, replaces_run: bool = False
) -> Store:
    """The place of a directory that is to be written to.

    Args:
        run: the run that is exported.
        out: a directory or a URL.
        force: remove files of this kind that are there.
        own: matches the keys that such an export writes; nothing is removed without it.
        replaces_run: it may be a run.

    Raises:
        SMDebugValueError: it holds something, and must not be written to; or it lies in a run, or
            holds one.
    """
    require_directory(out)
    require_outside_runs(run, out, replaces_run)
    store = open_store(out)
    first = store.first() if store.exists() else None
    if first is not None and not force:
        raise SMDebugValueError(_there(out, f"holds {first}"))
    if first is not None:
        require_no_run_below(out)
    if first is not None and own is not None:
        for key in [key for key in store.list() if own.fullmatch(key)]:
            store.delete(key)
    return store


def require_directory(out: str) -> None:
    """Refuses a path that leads to a file.

    Raises:
        SMDebugValueError: it is one.
    """
    if "://" not in out and Path(out).expanduser().is_file():
        raise SMDebugValueError(f"OUT must be a directory or a URL, got the file {out}")


def _there(out: str, why: str) -> str:
    return f"OUT must be new, got {out}, which {why}; choose another, or replace it (--force)"


class ChunkSink(io.RawIOBase):
    """A file for libraries to write to, whose content is handed on piece by piece.

    Example:
        >>> sink = ChunkSink()
        >>> sink.write(b"abc")
        3
        >>> list(sink.take())
        [b'abc']
    """

    def __init__(self) -> None:
        super().__init__()
        self._chunks: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        self._chunks.append(chunk)
        self._size += len(chunk)
        return len(chunk)

    def tell(self) -> int:
        return self._size

    def take(self) -> Iterator[bytes]:
        """Yields what was written since it was last asked for."""
        chunks, self._chunks = self._chunks, []
        yield from chunks
