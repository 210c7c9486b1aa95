"""The data that a hook explains a model with: a matrix, or a file that holds one."""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xgboost
from xgboost import collective

from smdebug.config import checks
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError
from smdebug.xgboost.source import NotAvailable, reason

if TYPE_CHECKING:
    from collections.abc import Callable

_CSV, _LIBSVM = "csv", "libsvm"
CONTENT_TYPES = {
    **dict.fromkeys(("csv", "text/csv"), _CSV),
    **dict.fromkeys(("libsvm", "text/libsvm", "text/x-libsvm"), _LIBSVM),
}
# XGBoost takes what follows them for parameters.
_UNFIT_FOR_PATHS = "?#"
_BY_COLUMNS = 1

_Result = TypeVar("_Result")


class Data:
    """A matrix that a user gave, or will be read from the file that he named.

    Args:
        key: the name of the argument, for the messages.
        given: a DMatrix, or a path with its content type.

    Raises:
        SMDebugTypeError: it is neither.
        SMDebugValueError: there is no such file or content type, or the file is of another type.

    Attributes:
        given: the same.
    """

    def __init__(self, key: str, given: Any) -> None:
        self.given = given
        self._key = key
        self._matrix: Any = None
        self._samples: dict[int, Any] = {}
        self._location: str | None = None
        if isinstance(given, xgboost.DMatrix):
            self._matrix = given
        elif isinstance(given, tuple | list) and len(given) == 2:
            self._location = _location(key, *given)
        else:
            raise SMDebugTypeError(
                f"{key} must be an xgboost.DMatrix or a tuple of a path and a content type, got "
                f"{type(given).__name__}; make a matrix of it with xgboost.DMatrix(data, label)"
            )

    def matrix(self) -> Any:
        """Returns the matrix; the first call reads it.

        Raises:
            NotAvailable: XGBoost cannot read the file; or a worker has some of its columns only.
        """
        if self._matrix is None:
            assert self._location is not None
            try:
                self._matrix = _by_itself(lambda: _read(self._location))
            except xgboost.core.XGBoostError as error:
                raise NotAvailable(f"{self._key} could not be read: {reason(error)}") from error
        if collective.is_distributed() and self._matrix.data_split_mode() == _BY_COLUMNS:
            raise NotAvailable(
                f"of {self._key} each worker has some columns; to predict with it all workers "
                "would have to take part"
            )
        return self._matrix

    def sample(self, rows: int) -> Any:
        """Returns a matrix of at most so many rows, evenly spread over all."""
        matrix = self.matrix()
        if matrix.num_row() <= rows:
            return matrix
        if rows not in self._samples:
            chosen = np.linspace(0, matrix.num_row() - 1, rows).astype(np.int64)
            self._samples = {rows: _by_itself(lambda: _rows(matrix, chosen))}
        return self._samples[rows]


def _location(key: str, path: Any, content_type: Any) -> str:
    """What XGBoost reads the file by; it can be opened, and looks like what it is said to be."""
    if not isinstance(path, str | os.PathLike):
        raise SMDebugTypeError(
            f"{key} must be an xgboost.DMatrix or a tuple of a path and a content type, got a "
            f"tuple that begins with {type(path).__name__}"
        )
    kind = CONTENT_TYPES.get(_LIBSVM if content_type is None else content_type)
    if kind is None:
        raise SMDebugValueError(
            f"{key}: the content type must be one of {', '.join(CONTENT_TYPES)} or None, got "
            f"{checks.shown(content_type)}"
        )
    place = Path(path).expanduser()
    if not place.exists():
        raise SMDebugValueError(f"{key}: there is no file {place}; expected one of type {kind}")
    if any(sign in str(place) for sign in _UNFIT_FOR_PATHS):
        raise SMDebugValueError(
            f"{key}: the path must have none of {' '.join(_UNFIT_FOR_PATHS)} in it, which XGBoost "
            f"cannot read, got {place}; give the hook a DMatrix"
        )
    _require_kind(key, place, kind)
    return f"{place}?format=csv&label_column=0" if kind == _CSV else f"{place}?format=libsvm"


def _require_kind(key: str, place: Path, kind: str) -> None:
    """Refuses what XGBoost would read as zeros without a word: headers, and other formats."""
    files = (
        sorted(each for each in place.iterdir() if each.is_file()) if place.is_dir() else [place]
    )
    if not files:
        raise SMDebugValueError(f"{key}: there is no file in {place}; expected some of type {kind}")
    with files[0].open(encoding="utf-8", errors="replace") as file:
        line = file.readline().strip()
    if not line:
        raise SMDebugValueError(f"{key}: {files[0]} must begin with a row of numbers, got nothing")
    if not (_is_csv(line) if kind == _CSV else _is_libsvm(line)):
        form = "label,value,... without a header" if kind == _CSV else "label index:value ..."
        raise SMDebugValueError(
            f"{key}: {files[0]} must have rows of the form {form}, its content type being {kind}, "
            f"got {checks.shown(line)}"
        )


def _is_csv(line: str) -> bool:
    cells = line.split(",")
    return len(cells) > 1 and all(_is_number(cell) or not cell.strip() for cell in cells)


def _is_libsvm(line: str) -> bool:
    label, *pairs = line.partition("#")[0].split() or [""]
    # A label may have a weight, a row the number of its query.
    parts = [label, *(pair.removeprefix("qid:") for pair in pairs)]
    numbers = [number for part in parts for number in part.split(":")]
    return all(":" in pair for pair in pairs) and all(_is_number(each) for each in numbers)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read(location: str | None) -> Any:
    with warnings.catch_warnings():
        # That reading text is deprecated is for whoever named a file to know; docs/xgboost.md.
        warnings.simplefilter("ignore")
        return xgboost.DMatrix(location)


def _rows(matrix: Any, rows: Any) -> Any:
    """Some rows of a matrix, as a matrix of its own."""
    if type(matrix) is xgboost.DMatrix:
        return matrix.slice(rows, allow_groups=True)
    # Those with cuts cannot be sliced; what they hold predicts the same.
    return xgboost.DMatrix(
        matrix.get_data()[rows],
        feature_names=matrix.feature_names,
        feature_types=matrix.feature_types,
        enable_categorical=True,
    )


def _by_itself(make: Callable[[], _Result]) -> _Result:
    """Calls a function where XGBoost's collective does not reach.

    A matrix is made by all workers together: one that makes it alone breaks the training of all.
    What connects them belongs to the thread, so another thread is alone.
    """
    if not collective.is_distributed():
        return make()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(make).result()
