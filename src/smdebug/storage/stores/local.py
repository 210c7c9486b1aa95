"""Store in a local directory: plain file I/O, memory-mapped reads, atomic writes."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import uuid
from typing import TYPE_CHECKING

from smdebug.exceptions import SMDebugRuntimeError, SMDebugValueError
from smdebug.storage.stores.base import check_key, check_prefix, cut_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from smdebug.storage.stores.base import Buffer, Store

# Readers of every version skip files with this suffix.
TEMPORARY_SUFFIX = ".tmp"
# Below this size a read call is cheaper than a mapping with its page faults.
_MAP_FROM = 1 << 16
# Chunks are collected to this size before a system call.
_GATHER = 1 << 20
_MAX_VECTORS = 512
# Asks the kernel to map pages before they are touched, one call instead of thousands of faults.
_MADV_POPULATE_READ = 22
# How many folders are cached: format v1 makes one for every step.
_MAX_FOLDERS = 1000


class LocalStore:
    """A `Store` over a directory.

    Large reads are views on the mapped file: no copy is made, and a view stays valid after the
    file is deleted. Symbolic links that lead out of the directory are refused.

    Example:
        >>> import tempfile
        >>> store = LocalStore(tempfile.mkdtemp())
        >>> store.write("events/x", [b"abc"])
        >>> list(store.list())
        ['events/x']
    """

    parallel = 1
    remote = False

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(os.path.expanduser(os.fspath(root)))
        self.url = self.root
        self._real_root: str | None = None
        self._inside: set[str] = set()
        self._made: set[str] = set()

    def read(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        descriptor = self._open(check_key(key))
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise KeyError(key)
            _require_file(status, key)
            first, end = cut_range(status.st_size, start, length)
            if end - first < _MAP_FROM:
                return memoryview(os.pread(descriptor, end - first, first))
            return _mapped(descriptor, first, end)
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            raise SMDebugRuntimeError(
                f"{key!r} has {status.st_size:,} bytes, more than this process may map"
            ) from error
        finally:
            os.close(descriptor)

    def write(self, key: str, chunks: Iterable[Buffer]) -> None:
        final = os.path.join(self.root, check_key(key))
        self._require_inside(key.rpartition("/")[0])
        # A unique name for every write: two writers of one key must not share a file.
        temporary = f"{final}.{uuid.uuid4().hex[:12]}{TEMPORARY_SUFFIX}"
        descriptor = self._create(temporary)
        try:
            try:
                _write_all(descriptor, chunks)
            finally:
                os.close(descriptor)
            os.replace(temporary, final)
        except BaseException:
            # The first error tells what is wrong, not the one of cleaning up.
            with contextlib.suppress(OSError):
                _remove(temporary)
            raise

    def list(self, prefix: str = "", after: str = "") -> Iterator[str]:
        folder = check_prefix(prefix)
        try:
            self._require_inside(folder)
        except SMDebugValueError:
            return iter(())  # the target of a link is not part of the run
        return iter(sorted(self._walk(folder, prefix, after)))

    def delete(self, key: str) -> None:
        self._require_inside(check_key(key).rpartition("/")[0])
        with contextlib.suppress(IsADirectoryError, NotADirectoryError):
            _remove(os.path.join(self.root, key))

    def exists(self) -> bool:
        return os.path.isdir(self.root)

    def first(self) -> str | None:
        with os.scandir(self.root) as entries:
            return next((entry.name for entry in entries), None)

    def path(self, key: str) -> str | None:
        # Other programs open this path: no folder in it may lead out of the run.
        self._require_inside(check_key(key).rpartition("/")[0])
        return os.path.join(self.root, key)

    def open(self, key: str, flags: int) -> int:
        """Open a file of the run, for what `read` and `write` cannot do, such as locks.

        Args:
            key: its key; symbolic links, pipes and devices are refused.
            flags: as for `os.open`; `O_CREAT` creates the folder, too.

        Returns:
            A descriptor, owned by the caller.

        Raises:
            SMDebugValueError: it is not a regular file, or leads out of the run.
            KeyError: it does not exist.
        """
        if flags & os.O_CREAT:
            self._require_inside(check_key(key).rpartition("/")[0])
            os.makedirs(os.path.dirname(os.path.join(self.root, key)), exist_ok=True)
        if os.path.isdir(os.path.join(self.root, check_key(key))):
            _require_file(os.stat(os.path.join(self.root, key)), key)
        descriptor = self._open(key, flags)
        try:
            _require_file(os.fstat(descriptor), key)
        except SMDebugValueError:
            os.close(descriptor)
            raise
        return descriptor

    def temporary_files(self) -> Iterator[str]:
        """Yield the keys of files that are being written, or that a crash left."""
        for folder, _, names in os.walk(self.root):
            inside = os.path.relpath(folder, self.root)
            for name in names:
                if name.endswith(TEMPORARY_SUFFIX):
                    yield name if inside == "." else f"{inside}/{name}".replace(os.sep, "/")

    def _walk(self, folder: str, prefix: str, after: str) -> Iterator[str]:
        path = os.path.join(self.root, folder) if folder else self.root
        try:
            with os.scandir(path) as entries:
                found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return
        # Last name first: compaction writes a file into the first folder, then empties the later
        # ones, so reading backwards always finds either the old or the new rows.
        for name, is_folder in sorted(found, reverse=True):
            key = f"{folder}/{name}" if folder else name
            if is_folder:
                inside = key + "/"
                may_match = inside.startswith(prefix) or prefix.startswith(inside)
                if may_match and (inside > after or after.startswith(inside)):
                    yield from self._walk(key, prefix, after)
            elif key.startswith(prefix) and key > after and not name.endswith(TEMPORARY_SUFFIX):
                yield key

    def _open(self, key: str, flags: int = os.O_RDONLY) -> int:
        folder, _, _ = key.rpartition("/")
        path = os.path.join(self.root, key)
        try:
            self._require_inside(folder)
            # Non-blocking: a pipe in the run must not block its reader.
            return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise KeyError(key) from None
        except OSError as error:
            if os.path.islink(path):
                raise SMDebugValueError(
                    f"{key!r} is a symbolic link; a run is read from its own directory only"
                ) from error
            if error.errno == errno.ENAMETOOLONG:
                raise KeyError(key) from None
            if error.errno == errno.ENXIO:
                # A socket, or a pipe without a reader.
                _require_file(os.lstat(path), key)
            raise

    def _require_inside(self, folder: str) -> None:
        if folder in self._inside:
            return
        # Resolved once: a link as the run's own path is the user's choice, one inside is not.
        if self._real_root is None:
            self._real_root = os.path.realpath(self.root)
        real = os.path.realpath(os.path.join(self.root, folder))
        if real != os.path.join(self._real_root, folder).rstrip("/"):
            raise SMDebugValueError(
                f"{folder!r} leads to {real}, outside the run {self.root}; "
                "a run is read from its own directory only"
            )
        _remember(folder, self._inside)

    def _create(self, path: str) -> int:
        folder = os.path.dirname(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        if folder in self._made:
            try:
                return os.open(path, flags, 0o666)
            except FileNotFoundError:
                pass  # the folder was removed meanwhile: create it again below
        os.makedirs(folder, exist_ok=True)
        _remember(folder, self._made)
        return os.open(path, flags, 0o666)


def _remember(folder: str, folders: set[str]) -> None:
    if len(folders) >= _MAX_FOLDERS:
        # The others are checked again when they are used again, which is rare.
        folders.clear()
    folders.add(folder)


def _require_file(status: os.stat_result, key: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SMDebugValueError(f"{key!r} is no file but a folder, a pipe, a socket or a device")


def _mapped(descriptor: int, first: int, end: int) -> memoryview:
    aligned = first - first % mmap.ALLOCATIONGRANULARITY
    mapping = mmap.mmap(descriptor, end - aligned, prot=mmap.PROT_READ, offset=aligned)
    return memoryview(mapping)[first - aligned :]


def temporary_files(store: Store) -> list[str]:
    """The sorted keys of temporary files; a store that writes whole objects has none."""
    return sorted(store.temporary_files()) if isinstance(store, LocalStore) else []


def populate(data: memoryview, first: int, length: int) -> None:
    """Map the pages of a range of a mapped file in one call, if the system supports it."""
    mapping = data.obj
    if isinstance(mapping, mmap.mmap):
        aligned = first - first % mmap.PAGESIZE
        with contextlib.suppress(OSError, ValueError, OverflowError):
            mapping.madvise(_MADV_POPULATE_READ, aligned, length + first - aligned)


def _write_all(descriptor: int, chunks: Iterable[Buffer]) -> None:
    waiting: list[memoryview] = []
    size = 0
    for chunk in chunks:
        view = memoryview(chunk).cast("B")
        if not len(view):
            continue
        waiting.append(view)
        size += len(view)
        if size >= _GATHER or len(waiting) >= _MAX_VECTORS:
            _write_vectors(descriptor, waiting)
            waiting, size = [], 0
    _write_vectors(descriptor, waiting)


def _write_vectors(descriptor: int, views: list[memoryview]) -> None:
    while views:
        written = os.writev(descriptor, views)
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
