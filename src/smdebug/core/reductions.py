"""The import path `smdebug.core.reductions` of smdebug 1.0."""

from smdebug.reductions import (
    REDUCTIONS_PREFIX,
    get_numpy_reduction,
    get_reduction_tensor_name,
    reverse_reduction_tensor_name,
)

__all__ = [
    "REDUCTIONS_PREFIX",
    "get_numpy_reduction",
    "get_reduction_tensor_name",
    "reverse_reduction_tensor_name",
]
