"""Text files that XGBoost reads: csv and libsvm."""

from __future__ import annotations

import re
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xgboost

from smdebug.config import validation
from smdebug.exceptions import SMDebugValueError

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTENT_TYPES = {
    **dict.fromkeys(("csv", "text/csv"), "csv"),
    **dict.fromkeys(("libsvm", "text/libsvm", "text/x-libsvm"), "libsvm"),
}

# Numbers that XGBoost parses correctly: others become zeros, or end in memory faults.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INDEX = re.compile(r"\d+", re.ASCII)
_MISSING = ("", "nan", "NaN", "NA")
# In a path XGBoost takes them for parameters, or for a list of files. It opens only ASCII names.
_SPECIAL = "?#;"
_LAYOUTS = {
    "csv": "label,value,... in each row and no header",
    "libsvm": "label index:value ... in each row",
}
_PARAMETERS = {"csv": "format=csv&label_column=0", "libsvm": "format=libsvm"}


class TextFile:
    """A file, or a directory of files, of one content type.

    Args:
        key: the name of the argument that it was passed as, for messages.
        path: its path.
        content_type: one of `CONTENT_TYPES`; None for libsvm.

    Raises:
        SMDebugValueError: the file or the content type does not exist, or they do not match.

    Attributes:
        path: its absolute path.
    """

    def __init__(self, key: str, path: Any, content_type: Any) -> None:
        self._key = key
        self._format = _format_of(key, content_type)
        self.path = _absolute(key, path)
        self._check_rows()

    def read(self) -> Any:
        """Read it into a DMatrix; the first column of csv is the label.

        Raises:
            OSError: it was removed, or access is denied.
        """
        real = str(self.path.resolve())
        if real.isascii() and not any(character in real for character in _SPECIAL):
            for file in self._files():
                # XGBoost's own error does not name a missing file.
                file.open("rb").close()
            return self._read(real)
        with tempfile.TemporaryDirectory() as folder:
            for number, file in enumerate(self._files()):
                _link_or_copy(file, Path(folder) / f"{number:06d}")
            return self._read(folder)

    def _read(self, path: str) -> Any:
        with warnings.catch_warnings():
            # Reading text is deprecated, as docs/xgboost.md says: not repeated for every run.
            warnings.simplefilter("ignore")
            return xgboost.DMatrix(f"{path}?{_PARAMETERS[self._format]}")

    def _check_rows(self) -> None:
        """Check the first row of each file: XGBoost misreads a header without an error."""
        try:
            lines = [(file, line) for file in self._files() if (line := self._first_row(file))]
        except OSError as error:
            raise SMDebugValueError(
                f"{self._key}: cannot read {self.path}: {error.strerror}"
            ) from error
        if not lines:
            raise SMDebugValueError(
                f"{self._key}: {self.path} contains no rows of type {self._format}"
            )
        for file, line in lines:
            if not (_is_csv(line) if self._format == "csv" else _is_libsvm(line)):
                raise SMDebugValueError(
                    f"{self._key}: the content type {self._format} requires "
                    f"{_LAYOUTS[self._format]}, got {validation.short_repr(line)} in {file}"
                )

    def _first_row(self, file: Path) -> str:
        """Return the first line that is not blank or a comment; `""` in an empty marker file."""
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                text = line if self._format == "csv" else line.partition("#")[0]
                if text.strip():
                    return text.rstrip("\r\n")
        return ""

    def _files(self) -> Iterator[Path]:
        if self.path.is_dir():
            yield from sorted(each for each in self.path.iterdir() if each.is_file())
        else:
            yield self.path


def _format_of(key: str, content_type: Any) -> str:
    if content_type is None:
        return "libsvm"
    if not isinstance(content_type, str) or content_type not in CONTENT_TYPES:
        raise SMDebugValueError(
            f"{key}: unknown content type {validation.short_repr(content_type)}. Choose from "
            f"{', '.join(CONTENT_TYPES)}, or None for libsvm"
        )
    return CONTENT_TYPES[content_type]


def _absolute(key: str, path: Any) -> Path:
    if not str(path):
        raise SMDebugValueError(
            f"{key}: the path must name a file, got {validation.short_repr(path)}"
        )
    try:
        # Absolute now: the working directory may change before the file is read.
        absolute = Path(path).expanduser().absolute()
        exists = absolute.exists()
    except (RuntimeError, OSError, ValueError) as error:
        raise SMDebugValueError(
            f"{key}: cannot open {validation.short_repr(str(path))}: {error}"
        ) from error
    if not exists:
        local = "; only local files are supported" if "://" in str(path) else ""
        raise SMDebugValueError(f"{key}: no such file {validation.short_repr(str(path))}{local}")
    return absolute


def _link_or_copy(file: Path, target: Path) -> None:
    """Make a file available under another name, without copying it where links are possible.

    Not as a symbolic link: XGBoost resolves it.
    """
    try:
        target.hardlink_to(file.resolve())
    except OSError:
        # Another disk, or a file system without links.
        shutil.copyfile(file, target)


def _is_csv(line: str) -> bool:
    label, *cells = line.split(",")
    # A cell of blanks is not a missing value: XGBoost reads on in the next row.
    known = [_is_number(cell.strip()) or cell in _MISSING for cell in cells]
    return bool(cells) and _is_number(label.strip()) and all(known)


def _is_libsvm(line: str) -> bool:
    label, *pairs = line.split()
    # A label may have a weight, and a row a query ID.
    if pairs and pairs[0].startswith("qid:") and _INDEX.fullmatch(pairs[0], 4):
        del pairs[0]
    fits = [_INDEX.fullmatch(index) and _is_number(value)
            for index, _, value in (pair.partition(":") for pair in pairs)]  # fmt: skip
    value, colon, weight = label.partition(":")
    return _is_number(value) and (not colon or _is_number(weight)) and all(fits)


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None
