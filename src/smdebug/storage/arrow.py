"""pyarrow, imported here only, so that a NumPy mismatch is reported with its remedy.

Conversions between Arrow and NumPy are here too. `pa.array`, `pa.scalar` and `Array.to_numpy`
import pandas where it is installed, which takes longer than opening a run; the functions here use
the buffers of an array instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ImportError as error:  # pragma: no cover - depends on the installed pair
    raise ImportError(
        f"pyarrow does not import ({error}). pyarrow 26 needs NumPy 2; where NumPy 1 must stay "
        "(MXNet 1.9, TensorFlow 2.15): pip install 'tornasole[numpy1]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["PARQUET_ERRORS", "from_list", "from_numpy", "pa", "pc", "pq", "to_numpy", "warm_up"]

# The exceptions of reading a Parquet file; errors of Parquet are one of the last two.
PARQUET_ERRORS = (pa.ArrowException, OSError, ValueError, RuntimeError)

# Arrow's names of types that NumPy calls otherwise.
_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}


def warm_up() -> None:
    """Run pyarrow's initialization now: it imports pandas if installed, which takes a while."""
    pa.array([0])


def to_numpy(column: Any, null: float | None = None) -> npt.NDArray[Any]:
    """Convert a column of numbers or booleans, without a copy where it has one chunk.

    Args:
        column: an array or chunked array.
        null: stands for missing values. Without it they are NaN, and integers become floats.

    Example:
        >>> to_numpy(from_list([3, None], pa.int64())).tolist()
        [3.0, nan]
        >>> to_numpy(from_list([3, None], pa.int64()), null=-1).tolist()
        [3, -1]
    """
    if isinstance(column, pa.ChunkedArray):
        chunks = [to_numpy(chunk, null) for chunk in column.chunks]
        empty = np.zeros(0, _dtype(column.type))
        return chunks[0] if len(chunks) == 1 else np.concatenate([empty, *chunks])
    bits, data = column.buffers()
    first, end = column.offset, column.offset + len(column)
    if not len(column):
        return np.zeros(0, _dtype(column.type))
    if pa.types.is_boolean(column.type):
        values = _unpack_bits(data, first, end)
    else:
        values = np.frombuffer(data, _dtype(column.type))[first:end]
    if not column.null_count:
        return values
    if null is None and values.dtype.kind != "f":
        values = values.astype(np.float64)
    valid = _unpack_bits(bits, first, end)
    return np.where(valid, values, values.dtype.type(np.nan if null is None else null))


def from_numpy(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Convert numbers or booleans, without a copy where they are contiguous numbers.

    Args:
        values: one dimension; NaN is a value, not a missing one.
        valid: where values are not missing; everywhere when None.
    """
    kind = pa.from_numpy_dtype(values.dtype)
    is_boolean = values.dtype.kind == "b"
    data = _pack_bits(values) if is_boolean else pa.py_buffer(np.ascontiguousarray(values))
    bits = None if valid is None or valid.all() else _pack_bits(valid)
    return pa.Array.from_buffers(kind, len(values), [bits, data])


def from_list(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Convert Python values, missing ones being None.

    Args:
        values: of one kind.
        kind: strings, numbers, booleans, or lists of these.

    Example:
        >>> from_list(["loss", None], pa.string()).to_pylist()
        ['loss', None]
    """
    valid = np.array([value is not None for value in values], bool)
    bits = None if valid.all() else _pack_bits(valid)
    if pa.types.is_string(kind):
        encoded = [b"" if value is None else value.encode() for value in values]
        buffers = [bits, _offsets(encoded), pa.py_buffer(b"".join(encoded))]
        return pa.Array.from_buffers(kind, len(values), buffers)
    if pa.types.is_list(kind):
        lists = [() if value is None else value for value in values]
        items = from_list([each for value in lists for each in value], kind.value_type)
        return pa.Array.from_buffers(kind, len(values), [bits, _offsets(lists)], children=[items])
    numbers = [0 if value is None else value for value in values]
    wide = np.int64 if pa.types.is_integer(kind) else _dtype(kind)
    # By a cast, which refuses integers that do not fit.
    return from_numpy(np.array(numbers, wide), valid).cast(kind)


def _offsets(parts: Sequence[Sequence[Any]]) -> pa.Buffer:
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    if ends[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowCapacityError(f"an Arrow array cannot hold {ends[-1]:,} bytes or items")
    return pa.py_buffer(ends.astype(np.int32))


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    # Not by `to_pandas_dtype`, which imports pandas in pyarrow 18.
    name = str(kind)
    return np.dtype(_FLOATS.get(name, name))


def _pack_bits(values: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _unpack_bits(buffer: pa.Buffer, first: int, end: int) -> npt.NDArray[np.bool_]:
    data = np.frombuffer(buffer, np.uint8)[first // 8 : (end + 7) // 8]
    bits = np.unpackbits(data, bitorder="little")
    return bits[first % 8 :][: end - first].view(np.bool_)
