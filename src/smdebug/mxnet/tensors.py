"""Copies of MXNet's arrays, for which training does not wait.

MXNet computes asynchronously, and an operation that reads an array runs before any later one that
writes to it. A copy is therefore only scheduled here; the writer thread waits for it and reduces
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import mxnet as mx
import numpy as np

from smdebug.hook.capture import SingleCapture, make_entry

if TYPE_CHECKING:
    from smdebug.hook.plan import SaveRequest
    from smdebug.reductions import Array
    from smdebug.storage.batch import StepBatch

NDArray: Any = mx.nd.NDArray
# MXNet's own stand-in for the type that NumPy does not have.
_BFLOAT16 = np.dtype([("bfloat16", np.uint16)])


def snapshot(array: Any) -> Any:
    """Schedule a dense copy, on the host, of the array's present values; does not wait."""
    # Otherwise autograd would record the copy.
    with mx.autograd.pause():
        if array.stype != "default":
            array = array.tostype("default")
        return array.copyto(mx.cpu())


def to_numpy(array: Any) -> Array:
    """Return the values of a dense array; waits for them."""
    values: Array = array.asnumpy()
    if values.dtype == _BFLOAT16:
        return values.view(np.uint16).view(ml_dtypes.bfloat16)
    return values


class NDArrayCapture(SingleCapture):
    """One array, whose copy may not be complete yet.

    Args:
        name: its name.
        copy: a copy of `snapshot`.
        request: what to save of it.
        time: seconds since 1970, when it differs from the step's.
    """

    def __init__(
        self, name: str, copy: Any, request: SaveRequest, time: float | None = None
    ) -> None:
        super().__init__(name, request, copy.size * np.dtype(copy.dtype).itemsize, time=time)
        self._copy = copy

    def finish(self, batch: StepBatch) -> None:
        array = to_numpy(self._copy)
        entry = make_entry(self._name, array, self._request, batch.placed, self._time)
        batch.entries.append(entry)
