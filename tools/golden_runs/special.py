"""Tensors that are easily stored wrongly: element types, shapes, values and names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.golden_runs.recorder import Array

_ODD_FLOATS = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1 / 3, 1e-3, 448.0]


def _unchanged(array: Array) -> Callable[[Any], Any]:
    return lambda torch: array


def _as_torch(array: Array, dtype: str) -> Callable[[Any], Any]:
    """Return what makes a tensor of PyTorch with the bytes of an array."""
    # Made from integers: PyTorch takes no arrays of ml_dtypes.
    bits = array.view({1: np.uint8, 2: np.int16}[array.dtype.itemsize])
    return lambda torch: torch.from_numpy(bits).view(getattr(torch, dtype))


def _limits(name: str) -> Array:
    info = np.iinfo(name)
    return np.array([info.min, info.max, 0, 1], name)


def _arrays() -> dict[str, Array]:
    floats = {
        f"{name}/special": np.array(
            [*_ODD_FLOATS, np.finfo(name).max, np.finfo(name).smallest_subnormal], name
        )
        for name in ("float16", "float32", "float64")
    }
    integers = {
        f"{name}/limits": _limits(name)
        for name in (
            "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        )
    }  # fmt: skip
    extended = {
        f"{name}/special": np.array(_ODD_FLOATS, getattr(ml_dtypes, name))
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
    }
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    return {
        **floats,
        **integers,
        **extended,
        "bool/both": np.array([[True, False], [False, False]]),
        "complex64/special": np.array([1 + 2j, complex(np.nan, -np.inf), -0.0j], np.complex64),
        "complex128/special": np.array([1 / 3 - 2j, complex(np.inf, np.nan)], np.complex128),
        "strings/several": np.array(["", "plain", "größe", "日本語", "\U0001f600", "two\nlines"]),
        "strings/matrix": np.array([["a", "bc"], ["", "déf"]]),
        "strings/one": np.array("only"),
        "bytes/several": np.array([b"", b"plain", b"\xff\x00\xfe"]),
        "zero_dimensions/float32": np.array(1.5, np.float32),
        "zero_dimensions/nan": np.array(np.nan, np.float64),
        "zero_dimensions/int64": np.array(-7, np.int64),
        # Not exact in float64, so it cannot be in the column `value`.
        "zero_dimensions/odd_int64": np.array(2**53 + 1, np.int64),
        "zero_dimensions/uint64": np.array(2**64 - 1, np.uint64),
        "zero_dimensions/bool": np.array(True),
        "zero_dimensions/bfloat16": np.array(-2.5, ml_dtypes.bfloat16),
        "zero_dimensions/complex64": np.array(1 - 1j, np.complex64),
        "one_element/float64": np.array([[[-0.0]]]),
        "one_element/inf": np.array([np.inf], np.float32),
        "one_element/int8": np.array([-128], np.int8),
        "empty/one_dimension": np.zeros((0,), np.float32),
        "empty/rows": np.zeros((0, 3), np.float64),
        "empty/middle": np.zeros((2, 0, 4), np.int8),
        "empty/bfloat16": np.zeros((0,), ml_dtypes.bfloat16),
        "strides/transposed": matrix.T,
        "strides/every_second": matrix[:, ::2],
        "strides/backwards": matrix[::-1],
        "byte_order/big": np.array([1.5, -2.25], ">f4"),
    }


# Name, what makes the tensor that is given to the hook, and the array that it is.
TENSORS: list[tuple[str, Callable[[Any], Any], Array]] = [
    *((name, _unchanged(array), array) for name, array in _arrays().items()),
    *(
        (f"torch_{dtype}/special", _as_torch(array, dtype), array)
        for dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
        for array in [np.array(_ODD_FLOATS, getattr(ml_dtypes, dtype))]
    ),
]

NAMES = (
    "größe/gewicht",
    "日本語",
    "face \U0001f600",
    "e\u0301 and é",
    "with space",
    " space around ",
    "dense/kernel:0",
    "ends/",
    "percent%2Fsign",
    "quote\"and'and\\",
    "tab\tand\nnewline",
    "../outside",
    "[red]markup[/red]",
    ".*",
    "-1",
    "x" * 300,
)

REDUCED = {
    "reduced/nan": np.array([1.0, np.nan, -2.0], np.float32),
    "reduced/inf": np.array([np.inf, 1.0, 0.0], np.float32),
    "reduced/large": np.array([3e38, 3e38, -1.0], np.float32),
    "reduced/tiny": np.array([1e-45, 0.0, -0.0], np.float32),
    "reduced/float64": np.array([1e300, 1 / 3, -0.1]),
    "reduced/int8": np.array([-128, 127, 0], np.int8),
    "reduced/bool": np.array([True, False, True]),
    "reduced/bfloat16": np.array([1.0, 0.333, -7.0], ml_dtypes.bfloat16),
    "reduced/zero_dimensions": np.array(-3.5, np.float32),
}
