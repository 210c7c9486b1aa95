"""How the pipeline handles tensors of TensorFlow and of the other backends of Keras."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from smdebug.config.log import WarnOnce
from smdebug.exceptions import SMDebugTypeError
from smdebug.hook.adapter import Adapter
from smdebug.tensorflow.backend import tf
from smdebug.tensorflow.collection import Collection
from smdebug.tensorflow.naming import ALWAYS_SAVED
from smdebug.tensorflow.tensors import capture_tensor, is_finite, is_symbolic, to_array

if TYPE_CHECKING:
    from smdebug.hook.capture import Capture
    from smdebug.hook.pipeline import Pipeline
    from smdebug.hook.plan import SaveRequest
    from smdebug.reductions import Array

logger = logging.getLogger("smdebug.hook")


class TensorflowAdapter(Adapter):
    """The common part of the adapters for Keras and for sessions."""

    framework = "TensorFlow"
    collection_class = Collection
    always_saved = ALWAYS_SAVED

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self._warnings = WarnOnce(logger)

    def warn_once(self, message: str) -> None:
        """Log a warning, unless this adapter has logged the same one before."""
        self._warnings.warning(message, message)

    def is_tensor(self, value: Any) -> bool:
        if tf is None or not isinstance(value, tf.Tensor) or is_symbolic(value):
            return False
        return value.dtype not in (tf.string, tf.resource, tf.variant)

    def to_array(self, key: str, value: Any) -> Array:
        if is_symbolic(value):
            raise SMDebugTypeError(
                f"{key} must be a number, an array or a tensor that has a value, got {value!r}, a "
                "symbolic tensor inside a graph or a tf.function; save it outside, or use "
                "hook.save_tape_logs"
            )
        return super().to_array(key, to_array(value) if hasattr(value, "dtype") else value)

    def capture(
        self,
        name: str,
        tensor: Any,
        request: SaveRequest,
        last: Capture | None = None,
        time: float | None = None,
    ) -> Capture | None:
        return capture_tensor(name, tensor, request, time)

    def is_finite(self, tensor: Any) -> bool:
        return is_finite(tensor)
