"""Rows of numbers in text files, which XGBoost reads: csv and libsvm."""

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

# What XGBoost reads as it is written: other numbers become zeros, or end in memory faults.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INDEX = re.compile(r"\d+", re.ASCII)
_MISSING = ("", "nan", "NaN", "NA")
# What XGBoost takes for parameters, or for other files. It finds no names beyond ASCII.
_UNFIT = "?#;"
_FORMS = {
    "csv": "label,value,... in each row and no header",
    "libsvm": "label index:value ... in each row",
}
_PARAMETERS = {"csv": "format=csv&label_column=0", "libsvm": "format=libsvm"}


class TextFile:
    """A file, or a directory of files, of one content type.

    Args:
        key: the name of the argument it was given as, for the messages.
        path: where it is.
        content_type: one of `CONTENT_TYPES`; None for libsvm.

    Raises:
        SMDebugValueError: there is no such content type or file, or the file is of another type.

    Attributes:
        place: where it is.
    """

    def __init__(self, key: str, path: Any, content_type: Any) -> None:
        self._key = key
        self._kind = _kind(key, content_type)
        self.place = _place(key, path)
        self._require_rows()

    def read(self) -> Any:
        """Reads it into a DMatrix; the first column of csv is the label.

        Raises:
            OSError: it is gone, or may not be read.
        """
        real = str(self.place.resolve())
        if real.isascii() and not any(sign in real for sign in _UNFIT):
            for file in self._files():
                # XGBoost would say of one that is gone only that it found none.
                file.open("rb").close()
            return self._read(real)
        with tempfile.TemporaryDirectory() as folder:
            for number, file in enumerate(self._files()):
                _lend(file, Path(folder) / f"{number:06d}")
            return self._read(folder)

    def _read(self, place: str) -> Any:
        with warnings.catch_warnings():
            # It deprecates reading text, which docs/xgboost.md says too: not at every training.
            warnings.simplefilter("ignore")
            return xgboost.DMatrix(f"{place}?{_PARAMETERS[self._kind]}")

    def _require_rows(self) -> None:
        """Refuses what would be read as something else without a word, a header for example."""
        try:
            lines = [(file, line) for file in self._files() if (line := self._first_row(file))]
        except OSError as error:
            raise SMDebugValueError(
                f"{self._key}: a file that can be read was expected, got {self.place}: "
                f"{error.strerror}"
            ) from error
        if not lines:
            raise SMDebugValueError(
                f"{self._key}: rows of type {self._kind} were expected, got none in {self.place}"
            )
        for file, line in lines:
            if not (_is_csv(line) if self._kind == "csv" else _is_libsvm(line)):
                raise SMDebugValueError(
                    f"{self._key}: the content type {self._kind} means {_FORMS[self._kind]}, got "
                    f"{validation.short_repr(line)} in {file}"
                )

    def _first_row(self, file: Path) -> str:
        """The first line that says something; empty when there is none, as in markers."""
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                text = line if self._kind == "csv" else line.partition("#")[0]
                if text.strip():
                    return text.rstrip("\r\n")
        return ""

    def _files(self) -> Iterator[Path]:
        if not self.place.is_dir():
            yield self.place
            return
        yield from sorted(each for each in self.place.iterdir() if each.is_file())


def _kind(key: str, content_type: Any) -> str:
    named = "libsvm" if content_type is None else content_type
    if not isinstance(named, str) or named not in CONTENT_TYPES:
        raise SMDebugValueError(
            f"{key}: the content type must be one of {', '.join(CONTENT_TYPES)} or None, got "
            f"{validation.short_repr(content_type)}"
        )
    return CONTENT_TYPES[named]


def _place(key: str, path: Any) -> Path:
    if not str(path):
        raise SMDebugValueError(
            f"{key}: the path must name a file, got {validation.short_repr(path)}"
        )
    try:
        # As it is now: training may go on in another directory.
        place = Path(path).expanduser().absolute()
        found = place.exists()
    except (RuntimeError, OSError, ValueError) as error:
        raise SMDebugValueError(
            f"{key}: {validation.short_repr(str(path))} cannot be looked up: {error}"
        ) from error
    if not found:
        local = "; files on this machine are read" if "://" in str(path) else ""
        raise SMDebugValueError(
            f"{key}: there is no file {validation.short_repr(str(path))}{local}"
        )
    return place


def _lend(file: Path, place: Path) -> None:
    """Makes a file readable under a plain name, at best without copying it.

    Not by a symbolic link: XGBoost goes by the name that it leads to.
    """
    try:
        place.hardlink_to(file.resolve())
    except OSError:
        # Another disk, or one without links.
        shutil.copyfile(file, place)


def _is_csv(line: str) -> bool:
    label, *cells = line.split(",")
    # Blanks by themselves are not nothing: XGBoost reads on in the next row.
    known = [_is_number(cell.strip()) or cell in _MISSING for cell in cells]
    return bool(cells) and _is_number(label.strip()) and all(known)


def _is_libsvm(line: str) -> bool:
    label, *pairs = line.split()
    # A label may have a weight, a row the number of its query.
    if pairs and pairs[0].startswith("qid:") and _INDEX.fullmatch(pairs[0], 4):
        del pairs[0]
    fits = [_INDEX.fullmatch(index) and _is_number(value)
            for index, _, value in (pair.partition(":") for pair in pairs)]  # fmt: skip
    value, colon, weight = label.partition(":")
    return _is_number(value) and (not colon or _is_number(weight)) and all(fits)


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None
