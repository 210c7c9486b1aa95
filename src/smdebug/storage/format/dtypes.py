"""Element types of a run: those of numpy and ml_dtypes, and their numbers in a TensorProto."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from smdebug.exceptions import SMDebugTypeError, SMDebugValueError

if TYPE_CHECKING:
    from smdebug.reductions import Array

STRING = 7

_NUMBERS: dict[str, int] = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
    "float8_e5m2": 24,
    "float8_e4m3fn": 25,
}
_EXTENDED = {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in ("bfloat16", "float8_e5m2", "float8_e4m3fn")
}
_DTYPES = {name: _EXTENDED.get(name) or np.dtype(name) for name in _NUMBERS}
_BY_NUMBER = {number: _DTYPES[name] for name, number in _NUMBERS.items()}


def is_string(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "USO"


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of an element type in the index: `float32`, `bfloat16`, `str`, `bytes`."""
    if is_string(dtype):
        return "bytes" if dtype.kind == "S" else "str"
    if dtype.name not in _NUMBERS:
        raise SMDebugTypeError(
            f"tensors of dtype {dtype} cannot be saved; expected one of "
            f"{', '.join(_NUMBERS)} or strings: convert the tensor first"
        )
    return str(dtype.name)


def is_known_dtype(name: str | None) -> bool:
    """Whether this is the name of an element type."""
    return name in _NUMBERS or name in ("str", "bytes")


def check_dtype(dtype: np.dtype[Any]) -> None:
    """Raise `SMDebugTypeError` for an element type that cannot be saved."""
    if dtype.name not in _NUMBERS:
        dtype_name(dtype)


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the element type of this name, for all but strings."""
    if name not in _DTYPES:
        raise SMDebugValueError(f"unknown dtype {name!r}")
    return _DTYPES[name]


def dtype_number(dtype: np.dtype[Any]) -> int:
    """Return the number of an element type in a TensorProto."""
    return STRING if is_string(dtype) else _NUMBERS[dtype_name(dtype)]


def dtype_of_number(number: int) -> np.dtype[Any]:
    if number not in _BY_NUMBER:
        raise SMDebugValueError(f"unknown tensor type number {number}")
    return _BY_NUMBER[number]


def plain_array(value: Any) -> Array:
    """Return a value as a C-contiguous little-endian array of a type that can be saved.

    Raises:
        SMDebugTypeError: the element type cannot be saved.
    """
    array = np.asarray(value)
    if is_string(array.dtype):
        return _checked_strings(array)
    dtype_name(array.dtype.newbyteorder("=") if array.dtype.kind != "V" else array.dtype)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    # ascontiguousarray would turn a 0-d array into a 1-d one.
    return array if array.flags.c_contiguous else array.copy(order="C")


def is_extended(dtype: np.dtype[Any]) -> bool:
    """Whether it is a type of ml_dtypes, which numpy's own formats cannot name."""
    return dtype.name in _EXTENDED


def widen_for_v1(array: Array) -> Array:
    """Convert types that format v1 lacks: bfloat16 and float8 become float32."""
    return array.astype(np.float32) if is_extended(array.dtype) else array


def _checked_strings(array: Array) -> Array:
    if array.dtype.kind != "O":
        return array
    if all(isinstance(item, str) for item in array.flat):
        return array.astype(np.str_)
    raise SMDebugTypeError("tensors of objects cannot be saved; expected numbers or strings")
