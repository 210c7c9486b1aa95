"""`TSAccessFile` under the path of smdebug 1.0: a file that appears when it is closed."""

from __future__ import annotations

from pathlib import Path

from smdebug.core.access_layer.base import TSAccessBase
from smdebug.exceptions import SMDebugValueError
from smdebug.storage.stores.local import TEMPORARY_SUFFIX as SMDEBUG_TEMP_PATH_SUFFIX

__all__ = ["SMDEBUG_TEMP_PATH_SUFFIX", "TSAccessFile", "get_temp_path"]


def get_temp_path(file_path: str) -> str:
    """Return the name that a file has while it is written.

    Example:
        >>> get_temp_path("run/x.json")
        'run/x.json.tmp'
    """
    return file_path + SMDEBUG_TEMP_PATH_SUFFIX


class TSAccessFile(TSAccessBase):
    """Writes a file, which gets its name when it is closed; or reads one.

    Args:
        path: the file; its directory is made when there is none.
        mode: as `open` takes it: with `r` it is read, else replaced.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/x"
        >>> with TSAccessFile(path, "wb") as file:
        ...     file.write(b"abc")
        [0, 3]
        >>> with TSAccessFile(path, "rb") as file:
        ...     file.read(2)
        b'ab'
    """

    def __init__(self, path: str, mode: str) -> None:
        super().__init__()
        kind = mode.replace("b", "").replace("t", "")
        if kind not in ("r", "w", "a", "a+", "w+"):
            raise SMDebugValueError(f"mode must be one of r, w, a, with or without b, got {mode!r}")
        self.path = path
        self.mode = mode
        self.binary = "b" in mode
        self._reads = kind == "r"
        self.temp_path = path if self._reads else get_temp_path(path)
        if not self._reads:
            Path(path).absolute().parent.mkdir(parents=True, exist_ok=True)
        self._file = Path(self.temp_path).open("rb" if self._reads else "wb")  # noqa: SIM115

    def write(self, _str: bytes | str) -> list[int]:
        """Write, and returns where in the file it stands and how many bytes it is."""
        data = _str.encode() if isinstance(_str, str) else _str
        start = self._position
        self._file.write(data)
        self._position += len(data)
        return [start, len(data)]

    def flush(self) -> None:
        """Hands what was written to the system."""
        self._file.flush()

    def close(self) -> None:
        """Closes the file, and gives it its name; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._file.close()
        if not self._reads:
            Path(self.temp_path).replace(self.path)

    def _load(self) -> bytes:
        return self._file.read()

    def __enter__(self) -> TSAccessFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None or self._reads:
            self.close()
        elif not self._closed:
            # Half a file is none.
            self._closed = True
            self._file.close()
            Path(self.temp_path).unlink()
