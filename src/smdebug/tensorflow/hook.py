"""The common base of the hooks for Keras and for sessions."""

from __future__ import annotations

from smdebug.hook.hook import BaseHook
from smdebug.tensorflow.adapter import TensorflowAdapter


class TensorflowHook(BaseHook):
    """Saves tensors of a TensorFlow training job; use `KerasHook` or `SessionHook`."""

    adapter_class = TensorflowAdapter
