"""Consistency checks of the rows of an index file of format v2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from smdebug.mode_keys import ModeKeys
from smdebug.storage.arrow import pc, to_numpy
from smdebug.storage.format.dtypes import is_known_dtype
from smdebug.storage.raw_tensors import VALUE_COLUMNS
from smdebug.storage.segment_summary import one_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from smdebug.storage.arrow import pa
    from smdebug.storage.format.keys import IndexName

    Bools = npt.NDArray[np.bool_]

CHECKED_COLUMNS = list(
    dict.fromkeys(["step", "mode", "mode_step", "worker", "tensor", "position", *VALUE_COLUMNS])
)
_LOCATION = ("event_file", "offset", "length", "checksum")


def wrong_rows(table: pa.Table, name: IndexName) -> list[tuple[int, str]]:
    """Return the inconsistent rows, each with its first problem.

    Args:
        table: rows of a row group of format v2, with the columns `CHECKED_COLUMNS`.
        name: the parsed name of their file.
    """
    found: dict[int, str] = {}
    for what, wrong in _checks(table, name):
        for row in np.flatnonzero(wrong).tolist():
            found.setdefault(row, what)
    return sorted(found.items())


def _checks(table: pa.Table, name: IndexName) -> Iterator[tuple[str, Bools]]:
    valid = {column: to_numpy(table[column].is_valid()) for column in CHECKED_COLUMNS}
    yield "the row is of another worker than its file", ~_is_one_of(table, "worker", {name.worker})
    yield "the row has an unknown mode", ~_is_one_of(table, "mode", set(ModeKeys.__members__))
    known = valid["dtype"] & ~_is_dtype(table)
    yield "the row has an unknown dtype", known
    for column in ("step", "mode_step", "position"):
        yield f"the row has a negative {column}", to_numpy(table[column]) < 0
    if name.seq is not None:
        what = "the row is of a later segment than its file"
        yield what, to_numpy(table["seq"]) > name.seq
    locations = np.stack([valid[column] for column in _LOCATION])
    yield "the row has an incomplete location", locations.any(axis=0) != locations.all(axis=0)
    has_value = valid["value"]
    yield "the row has a value and a record", has_value & valid["offset"]
    single = shape_elements(table) == 1
    yield "the row has one value, but its shape does not have one element", has_value & ~single
    yield "the row is out of order", _unordered(table)


def _is_one_of(table: pa.Table, column: str, names: set[str]) -> Bools:
    array = one_array(table[column])
    texts = array.dictionary.to_pylist()
    fits = np.array([text in names for text in texts] or [False])
    codes = to_numpy(array.indices)
    found: Bools = fits[np.nan_to_num(codes).astype(np.int64)]
    return found


def _is_dtype(table: pa.Table) -> Bools:
    texts = one_array(table["dtype"]).dictionary.to_pylist()
    return _is_one_of(table, "dtype", {text for text in texts if is_known_dtype(text)})


def shape_elements(table: pa.Table) -> npt.NDArray[np.float64]:
    """Return the number of elements of each row's shape; -1 without a shape."""
    shapes = one_array(table["shape"])
    lengths = to_numpy(pc.list_value_length(shapes), null=0)
    # As floats, which do not overflow: the shape may be of unknown origin.
    sizes = np.append(to_numpy(shapes.flatten()).astype(np.float64), 1.0)
    starts = np.cumsum(lengths) - lengths
    products = np.multiply.reduceat(sizes, starts) if len(starts) else np.ones(0)
    known = to_numpy(shapes.is_valid())
    return np.where(known, np.where(lengths > 0, products, 1.0), -1.0)


def _unordered(table: pa.Table) -> Bools:
    """Return the rows that are out of order: by tensor, then by step."""
    wrong = np.zeros(table.num_rows, bool)
    codes = to_numpy(one_array(table["tensor"]).indices)
    steps = to_numpy(table["step"])
    same = codes[1:] == codes[:-1]
    wrong[1:] = same & (steps[1:] <= steps[:-1])
    # In a valid file the rows of a tensor are contiguous.
    starts = np.flatnonzero(np.concatenate([[True], ~same])) if len(codes) else np.zeros(0, int)
    _, first = np.unique(codes[starts], return_index=True)
    again = np.ones(len(starts), bool)
    again[first] = False
    wrong[starts[again]] = True
    return wrong
