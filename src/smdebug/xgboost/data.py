"""The data that the user gives a hook: a matrix, or a text file that XGBoost reads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xgboost
from xgboost import collective

from smdebug.config import validation
from smdebug.exceptions import SMDebugTypeError
from smdebug.xgboost.source import NotAvailable, error_message
from smdebug.xgboost.text_file import TextFile

if TYPE_CHECKING:
    from collections.abc import Callable

# The value of `DMatrix.data_split_mode` where each worker has some of the columns.
_SPLIT_BY_COLUMN = 1

_Result = TypeVar("_Result")


class Data:
    """A matrix, or a file that is read on first use.

    Args:
        key: the name of the argument, for messages.
        given: a DMatrix, or a path with its content type.

    Raises:
        SMDebugTypeError: it is neither.
        SMDebugValueError: the file or the content type does not exist, or they do not match.

    Attributes:
        given: what the user passed.
    """

    def __init__(self, key: str, given: Any) -> None:
        self.given = given
        self._key = key
        self._matrix: Any = None
        self._file: TextFile | None = None
        # The rows that were chosen last, by their number.
        self._samples: dict[int, Any] = {}
        if isinstance(given, xgboost.DMatrix):
            self._matrix = given
        elif _is_file(given):
            self._file = TextFile(key, *given)
        else:
            shown = isinstance(given, str | tuple)
            raise SMDebugTypeError(
                f"{key} must be an xgboost.DMatrix or a tuple of a path and a content type, such "
                f'as ("rows.csv", "csv"), got '
                f"{validation.short_repr(given) if shown else type(given).__name__}; "
                "xgboost.DMatrix(data, label) makes a matrix of arrays and frames"
            )

    def matrix(self) -> Any:
        """Return the matrix; the first call reads it.

        Raises:
            NotAvailable: XGBoost cannot read the file, or there are no rows.
        """
        if self._matrix is None:
            assert self._file is not None
            try:
                self._matrix = _outside_collective(self._file.read)
            except (xgboost.core.XGBoostError, OSError) as error:
                raise NotAvailable(
                    f"{self._key} could not be read from {self._file.path}: {error_message(error)}"
                ) from error
        if not self._matrix.num_row():
            raise NotAvailable(f"{self._key} has no rows")
        return self._matrix

    def matrix_for(self, booster: Any) -> Any:
        """Return the matrix for predictions.

        Args:
            booster: the model. The columns of a file, which have no names, get those of its
                features.

        Raises:
            NotAvailable: as for `matrix`, and where each worker has some of the columns.
        """
        matrix = self.matrix()
        if self._file is not None and matrix.num_col() == booster.num_features():
            if matrix.feature_names != booster.feature_names:
                self._samples.clear()
            matrix.feature_names = booster.feature_names
            matrix.feature_types = booster.feature_types
        if collective.is_distributed() and matrix.data_split_mode() == _SPLIT_BY_COLUMN:
            raise NotAvailable(
                f"each worker has only some of the columns of {self._key}; predictions would need "
                "all workers"
            )
        return matrix

    def sample(self, rows: int, booster: Any) -> Any:
        """Return at most so many rows, evenly spaced, of the matrix that `matrix_for` returns."""
        matrix = self.matrix_for(booster)
        if matrix.num_row() <= rows:
            return matrix
        if rows not in self._samples:
            chosen = np.linspace(0, matrix.num_row() - 1, rows).astype(np.int64)
            self._samples = {rows: _outside_collective(lambda: _select_rows(matrix, chosen))}
        return self._samples[rows]

    def drop_samples(self) -> None:
        """Free the rows that `sample` has chosen."""
        self._samples.clear()


def _select_rows(matrix: Any, rows: Any) -> Any:
    """Return a matrix of some rows.

    Raises:
        NotAvailable: XGBoost does not support it for this matrix.
    """
    try:
        if not isinstance(matrix, xgboost.QuantileDMatrix):
            return matrix.slice(rows, allow_groups=True)
        # A QuantileDMatrix has no `slice`. Its binned values give the same predictions, unless
        # they are codes of categories.
        if matrix.get_categories().empty():
            margin = matrix.get_base_margin()
            return xgboost.DMatrix(
                matrix.get_data()[rows],
                base_margin=margin.reshape(matrix.num_row(), -1)[rows] if margin.size else None,
                feature_names=matrix.feature_names,
                feature_types=matrix.feature_types,
                enable_categorical=True,
            )
    except xgboost.core.XGBoostError:
        # The matrix is in external memory.
        pass
    raise NotAvailable(
        f"cannot select rows of train_data ({type(matrix).__name__}); give the hook a DMatrix of "
        f"some rows, or shap_samples={matrix.num_row()} to use all of them"
    )


def _is_file(given: Any) -> bool:
    is_pair = isinstance(given, tuple | list) and len(given) == 2
    return is_pair and isinstance(given[0], str | os.PathLike)


def _outside_collective(make: Callable[[], _Result]) -> _Result:
    """Call a function that makes a matrix in this worker only.

    All workers take part when a matrix is made: one alone would break the training of all. The
    connection belongs to the thread, so the function is called in another one.
    """
    if not collective.is_distributed():
        return make()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(make).result()
