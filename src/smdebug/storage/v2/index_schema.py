"""Checks of the schema and columns of an index file, whose origin may be unknown."""

from __future__ import annotations

from typing import Any

import numpy as np

from smdebug.exceptions import IndexReaderException
from smdebug.storage.arrow import pa, pc, to_numpy
from smdebug.storage.format.keys import LAST_STEP
from smdebug.storage.untrusted.limits import COLUMN_BYTES, DIMENSIONS
from smdebug.storage.v2.index import SCHEMA, TEXT_COLUMNS

# Columns that have a value in every row.
REQUIRED = {field.name for field in SCHEMA if not field.nullable}


def check_schema(schema: pa.Schema) -> None:
    """Raise for columns of another type; columns added later are null in older files.

    Raises:
        IndexReaderException: a column is missing or of another type.
    """
    # The usual case, in a hundredth of the time.
    if schema.equals(SCHEMA):
        return
    missing = REQUIRED - set(schema.names)
    if missing:
        raise IndexReaderException(f"columns are missing: {', '.join(sorted(missing))}")
    if len(set(schema.names)) != len(schema.names):
        raise IndexReaderException("a column is duplicated")
    for field in schema:
        expected = SCHEMA.field(field.name) if field.name in SCHEMA.names else None
        if expected is None and not pa.types.is_nested(field.type):
            continue
        nullable = expected is not None and (expected.nullable or not field.nullable)
        if expected is None or field.type != expected.type or not nullable:
            raise IndexReaderException(
                f"column {field.name!r} is of {field.type}, expected "
                f"{'none of this name' if expected is None else expected}"
            )


def check_steps(columns: dict[str, Any]) -> None:
    """Raise for impossible step numbers.

    Raises:
        IndexReaderException: a number is out of range.
    """
    for name, last in (("step", LAST_STEP), ("mode_step", np.iinfo(np.int64).max)):
        steps = to_numpy(columns[name])
        if len(steps) and (steps.min() < 0 or steps.max() > last):
            raise IndexReaderException(
                f"{name} must lie between 0 and {last}, got {steps.min()} to {steps.max()}"
            )


def check_column(name: str, column: Any) -> None:
    """Raise for values that would fail, or take too much memory, when they are used.

    Raises:
        IndexReaderException: there is such a value.
    """
    if name in TEXT_COLUMNS:
        check_texts(name, column)
    elif name == "shape":
        _check_shapes(column)


def check_texts(name: str, column: Any) -> None:
    """Raise for a dictionary column with invalid strings, or too large when written out.

    Raises:
        IndexReaderException: it is one.
    """
    texts = column.dictionary
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise IndexReaderException(f"column {name} has an invalid string: {error}") from error
    if not len(texts):
        return
    lengths = pc.binary_length(texts)
    if pc.max(lengths).as_py() * len(column) <= COLUMN_BYTES:
        return
    codes = to_numpy(column.indices.drop_null())
    size = int(to_numpy(lengths).astype(np.int64)[codes].sum())
    if size > COLUMN_BYTES:
        raise IndexReaderException(
            f"the strings of column {name} take {size:,} bytes in one row group, expected at most "
            f"{COLUMN_BYTES:,}"
        )


def _check_shapes(column: Any) -> None:
    longest = pc.max(pc.list_value_length(column)).as_py() or 0
    if longest > DIMENSIONS or column.flatten().null_count:
        raise IndexReaderException(
            f"a shape has {longest:,} dimensions or a missing one, expected at most {DIMENSIONS}"
        )
