"""What the index of format v1 does not say of a row: its time, type, shape and number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smdebug.storage.arrow import from_list, from_numpy, pa, to_numpy
from smdebug.storage.format.dtypes import dtype_name
from smdebug.storage.v2.index import SCHEMA
from smdebug.storage.v2.segment import scalar_value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from smdebug.reductions import Array
    from smdebug.trials.trial import Trial

# Records up to this size, in bytes, are read to see what they are: a number is one of them.
_SMALL = 4096
_FILLED = ("time", "dtype", "shape", "value")


def completed_rows(
    trial: Trial, table: pa.Table, values: Sequence[Array | None] | None = None
) -> pa.Table:
    """Fills in what rows of format v1 lack, from their records; other rows stay as they are.

    Args:
        trial: the run.
        table: rows with the columns `VALUE_COLUMNS`, `time`, `worker` and `tensor`.
        values: their raw values, if they were read. Otherwise small records are read, and of
            larger ones type and shape are not known.
    """
    classic = to_numpy(table["seq"]) < 0
    if not classic.any():
        return table
    columns: dict[str, list[Any]] = {name: table[name].to_pylist() for name in _FILLED}
    columns["time"] = trial.row_times(table)
    found = _small_values(trial, table, classic) if values is None else dict(enumerate(values))
    for row, value in found.items():
        if value is None or not classic[row]:
            continue
        columns["dtype"][row] = dtype_name(value.dtype)
        columns["shape"][row] = list(value.shape)
        columns["value"][row] = scalar_value(value)
    for name, column in columns.items():
        place = table.column_names.index(name)
        kind = SCHEMA.field(name).type
        text = pa.types.is_dictionary(kind)
        array = from_list(column, pa.string() if text else kind)
        table = table.set_column(place, name, array.dictionary_encode() if text else array)
    return table


def _small_values(trial: Trial, table: pa.Table, classic: Array) -> dict[int, Array | None]:
    lengths = to_numpy(table["length"])
    with np.errstate(invalid="ignore"):
        rows = np.flatnonzero(classic & (lengths <= _SMALL))
    return dict(zip(rows.tolist(), trial.row_values(table.take(from_numpy(rows))), strict=True))
