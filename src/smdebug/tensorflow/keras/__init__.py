"""The hook for Keras; `smdebug.tensorflow.keras` is an import path of smdebug 1.0."""

from smdebug.tensorflow.keras.hook import KerasHook

TornasoleKerasHook = KerasHook

__all__ = ["KerasHook", "TornasoleKerasHook"]
