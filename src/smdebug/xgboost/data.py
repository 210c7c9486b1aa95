"""The data that a hook explains a model with: a matrix, or a file that holds one."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xgboost
from xgboost import collective

from smdebug.config import validation
from smdebug.exceptions import SMDebugTypeError
from smdebug.xgboost.source import NotAvailable, reason
from smdebug.xgboost.text_file import TextFile

if TYPE_CHECKING:
    from collections.abc import Callable

# What `DMatrix.data_split_mode` says.
_BY_COLUMNS = 1

_Result = TypeVar("_Result")


class Data:
    """A matrix that a user gave, or that will be read from a file.

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
        self._file: TextFile | None = None
        if isinstance(given, xgboost.DMatrix):
            self._matrix = given
        elif _is_file(given):
            self._file = TextFile(key, *given)
        else:
            raise SMDebugTypeError(
                f"{key} must be an xgboost.DMatrix or a tuple of a path and a content type, such "
                f'as ("rows.csv", "csv"), got {_shown(given)}; xgboost.DMatrix(data, label) makes '
                "a matrix of arrays and frames"
            )

    def matrix(self) -> Any:
        """Returns the matrix; the first call reads it.

        Raises:
            NotAvailable: XGBoost cannot read the file, or it holds nothing.
        """
        if self._matrix is None:
            assert self._file is not None
            try:
                self._matrix = _by_itself(self._file.read)
            except (xgboost.core.XGBoostError, OSError) as error:
                raise NotAvailable(
                    f"{self._key} could not be read from {self._file.place}: {reason(error)}"
                ) from error
        if not self._matrix.num_row():
            raise NotAvailable(f"{self._key} has no rows")
        return self._matrix

    def whole(self, booster: Any) -> Any:
        """Returns the matrix, which a model can predict.

        Args:
            booster: the model. Columns of a file, which have no names, get those it knows.

        Raises:
            NotAvailable: also when each worker has some of its columns only.
        """
        matrix = self.matrix()
        if self._file is not None and matrix.num_col() == booster.num_features():
            if matrix.feature_names != booster.feature_names:
                self._samples.clear()
            matrix.feature_names = booster.feature_names
            matrix.feature_types = booster.feature_types
        if collective.is_distributed() and matrix.data_split_mode() == _BY_COLUMNS:
            raise NotAvailable(
                f"of {self._key} each worker has some columns; to predict with it all workers "
                "would have to take part"
            )
        return matrix

    def forget_samples(self) -> None:
        """Lets go of rows that were chosen."""
        self._samples.clear()

    def sample(self, rows: int, booster: Any) -> Any:
        """Returns a matrix of at most so many rows, evenly spread over all; else as `whole`."""
        matrix = self.whole(booster)
        if matrix.num_row() <= rows:
            return matrix
        if rows not in self._samples:
            chosen = np.linspace(0, matrix.num_row() - 1, rows).astype(np.int64)
            self._samples = {rows: _by_itself(lambda: _rows(matrix, chosen))}
        return self._samples[rows]


def _rows(matrix: Any, rows: Any) -> Any:
    """Some rows of a matrix, as a matrix of its own.

    Raises:
        NotAvailable: none can be chosen.
    """
    try:
        if not isinstance(matrix, xgboost.QuantileDMatrix):
            return matrix.slice(rows, allow_groups=True)
        # Such a one cannot be sliced. What it holds predicts the same, unless it stands for names.
        if matrix.get_categories().empty():
            return _copied_rows(matrix, rows)
    except xgboost.core.XGBoostError:
        # It is in external memory.
        pass
    raise NotAvailable(
        f"no rows of train_data ({type(matrix).__name__}) can be chosen; give the hook a DMatrix "
        f"of some rows, or shap_samples={matrix.num_row()} for all of them"
    )


def _copied_rows(matrix: Any, rows: Any) -> Any:
    margin = matrix.get_base_margin()
    return xgboost.DMatrix(
        matrix.get_data()[rows],
        base_margin=margin.reshape(matrix.num_row(), -1)[rows] if margin.size else None,
        feature_names=matrix.feature_names,
        feature_types=matrix.feature_types,
        enable_categorical=True,
    )


def _is_file(given: Any) -> bool:
    if not isinstance(given, tuple | list) or len(given) != 2:
        return False
    return isinstance(given[0], str | os.PathLike)


def _shown(given: Any) -> str:
    return validation.short_repr(given) if isinstance(given, str | tuple) else type(given).__name__


def _by_itself(make: Callable[[], _Result]) -> _Result:
    """Calls a function where XGBoost's collective does not reach.

    A matrix is made by all workers together: one that makes it alone breaks the training of all.
    What connects them belongs to the thread, so another thread is alone.
    """
    if not collective.is_distributed():
        return make()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(make).result()
