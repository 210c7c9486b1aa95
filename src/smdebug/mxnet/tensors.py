"""Arrays of MXNet: how they get to the host without training waiting for it.

MXNet computes later than it is asked to, in an order in which whoever reads an array comes before
whoever writes to it next. A copy is therefore only asked for here; the writer's thread waits for
it, and reduces it.
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
# What MXNet itself uses for the type that numpy does not have.
_BFLOAT16 = np.dtype([("bfloat16", np.uint16)])


def snapshot(array: Any) -> Any:
    """Asks for a dense copy on the host, of what the array holds now; does not wait for it."""
    # Otherwise the copy would become a part of what is being recorded.
    with mx.autograd.pause():
        if array.stype != "default":
            array = array.tostype("default")
        return array.copyto(mx.cpu())


def to_numpy(array: Any) -> Array:
    """The values of a dense array; waits for them."""
    values: Array = array.asnumpy()
    if values.dtype == _BFLOAT16:
        return values.view(np.uint16).view(ml_dtypes.bfloat16)
    return values


class NDArrayCapture(SingleCapture):
    """One array of which a copy is under way.

    Args:
        name: its name.
        copy: as `snapshot` returns it.
        want: what is saved of it.
    """

    def __init__(self, name: str, copy: Any, want: SaveRequest) -> None:
        super().__init__(name, want, copy.size * np.dtype(copy.dtype).itemsize)
        self._copy = copy

    def finish(self, batch: StepBatch) -> None:
        batch.entries.append(make_entry(self._name, to_numpy(self._copy), self._want, batch.placed))
